"""Compiles programs in a process of its own, which has the compiler's libraries and settings to itself, and may die of them.

Run as a module it reads a `Request` from standard input and writes a line of JSON for every program as soon as it is compiled.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.planning import targets

# Named scopes by which the time of a program is told apart.
PARTS = ("embedding", "norm", "projections", "attention", "mlp", "log_partition", "score", "search")


@dataclasses.dataclass(frozen=True)
class Request:
    """Programs to compile: for which target and mesh, for the model of which config.json (with `layers` blocks, if not 0), for
    which packing and search (the fields of `packing.PackShape` and `programs.Search`)."""

    target: str
    data: int
    model: int
    programs: tuple[str, ...]
    hf: Mapping[str, Any]
    dtype: str
    shape: Mapping[str, Any]
    search: Mapping[str, Any]
    layers: int = 0


@dataclasses.dataclass(frozen=True)
class Figures:
    """What the compiler says of a program, per device.

    Attributes:
        name: of the program.
        error: why there is no program; the other fields are then empty.
        arguments, outputs, temporaries, peak: bytes of memory.
        operations: of its matrix products, as `operations.count`.
        cycles: the compiler's estimate for each part; empty where it makes none.
        collectives: the fields of each `hlo.Collective`.
        copies: of whole weights or anchors, as `hlo.Program.copies`.
        has_float64: whether anything is computed in float64.
        seconds: that compiling took.
    """

    name: str
    error: str = ""
    arguments: int = 0
    outputs: int = 0
    temporaries: int = 0
    peak: int = 0
    operations: float = 0.0
    cycles: Mapping[str, int] = dataclasses.field(default_factory=dict)
    collectives: Sequence[Mapping[str, Any]] = ()
    copies: Sequence[str] = ()
    has_float64: bool = False
    seconds: float = 0.0

    @property
    def is_out_of_memory(self) -> bool:
        return "RESOURCE_EXHAUSTED" in self.error


def compile_all(request: Request) -> dict[str, Figures]:
    """The figures of each program, by name; one that cannot be compiled has an error instead.

    Raises:
        UserError: there is no such target, or its compiler is not installed.
    """
    environment = {**os.environ, **targets.get(request.target).environment()}
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(dataclasses.asdict(request)),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    figures = {line["name"]: Figures(**line) for line in lines}
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return {name: figures.get(name) or Figures(name, f"the compiler stopped: {last}") for name in request.programs}


def _main() -> None:
    request = Request(**json.load(sys.stdin))
    from knnprompt_jax.models import registry
    from knnprompt_jax.planning import programs
    from knnprompt_jax.prompts import packing
    from knnprompt_jax.store import store as store_lib

    config = registry.config_from_hf(request.hf)
    config = dataclasses.replace(config, num_layers=request.layers or config.num_layers)
    store = store_lib.StoreOptions(**request.search["store"])
    search = programs.Search(**{**request.search, "store": store})
    job = programs.Job(config, request.dtype, packing.PackShape(**request.shape), search)
    mesh = programs.mesh_of(targets.get(request.target).devices(), request.data, request.model)
    for name in request.programs:
        print(json.dumps(dataclasses.asdict(_compile(name, job, mesh))), flush=True)


def _compile(name: str, job: Any, mesh: Any) -> Figures:
    from jax.errors import JaxRuntimeError

    from knnprompt_jax import parallel
    from knnprompt_jax.planning import hlo, operations, programs

    try:
        traced = programs.trace(name, job, mesh)
        lowered, started = traced.lower(), time.monotonic()
        compiled = lowered.compile()
    except (JaxRuntimeError, errors.UserError) as error:
        return Figures(name, " ".join(str(error).split()))
    seconds, memory = time.monotonic() - started, compiled.memory_analysis()
    program, shared = hlo.Program(compiled.as_text()), 1 if name == programs.SEARCH else mesh.shape[parallel.MODEL]
    return Figures(
        name,
        arguments=memory.argument_size_in_bytes,
        outputs=memory.output_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        peak=memory.peak_memory_in_bytes,
        operations=operations.count(traced.jaxpr.jaxpr) / shared,
        cycles=program.cycles(PARTS),
        collectives=[dataclasses.asdict(each) for each in program.collectives(mesh.shape)],
        copies=program.copies("keys" if name == programs.SEARCH else "params"),
        has_float64=program.has("f64"),
        seconds=round(seconds, 1),
    )


if __name__ == "__main__":
    _main()
