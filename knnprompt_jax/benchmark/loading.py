"""How much host memory loading takes: a checkpoint of random weights made on the spot, processes that load their shards of it.

What is counted is the peak resident set of a process less what it held before, mapped pages of the files included.
"""

import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from flax import nnx, serialization, traverse_util

import knnprompt_jax
from knnprompt_jax import errors, parallel, tables
from knnprompt_jax.models import checkpoints, conversion, registry, sharding

WIDTH, HEADS = 1280, 16
SHARD_BYTES = 300 * 10**6
_NAMES = {
    "safetensors": "model-{:05}.safetensors",
    "msgpack": "flax_model-{:05}.msgpack",
    "bin": "pytorch_model-{:05}.bin",
}
_INDICES = {
    "safetensors": "model.safetensors.index.json",
    "msgpack": "flax_model.msgpack.index.json",
    "bin": "pytorch_model.bin.index.json",
}


def run(
    kinds: Sequence[str], gigabytes: float, processes: Sequence[int], devices: int, parent: str = ""
) -> dict[tuple[str, int], tuple[int, list[dict[str, int]]]]:
    """By kind of file and number of processes: the bytes of a checkpoint, and what `load` found in each process.

    Raises:
        UserError: an unknown kind of file, devices that cannot be shared out, or a process that failed.
    """
    for kind in kinds:
        if kind not in _NAMES:
            raise errors.UserError(f"files={kind!r}: choose from {', '.join(_NAMES)}")
    for count in processes:
        if count < 1 or devices % count or HEADS % devices:
            raise errors.UserError(
                f"processes={count}, devices={devices}: devices must divide {HEADS}, processes devices"
            )
    found = {}
    for kind in kinds:
        with tempfile.TemporaryDirectory(dir=parent or None) as name:
            size = write_checkpoint(pathlib.Path(name) / "model", gigabytes, kind)
            for count in processes:
                found[kind, count] = size, measure(pathlib.Path(name) / "model", count, devices)
    return found


def write_checkpoint(folder: pathlib.Path, gigabytes: float, kind: str) -> int:
    """An OPT of width 1,280 with float32 weights of at least so many bytes, in files of 300 MB; returns their bytes."""
    hf = {"model_type": "opt", "hidden_size": WIDTH, "ffn_dim": 4 * WIDTH, "num_attention_heads": HEADS}
    layers = 1
    while 4 * registry.num_parameters(registry.config_from_hf({**hf, "num_hidden_layers": layers})) < gigabytes * 1e9:
        layers += 1
    hf["num_hidden_layers"] = layers
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(hf), encoding="utf-8")
    config, family = registry.config_from_hf(hf), registry.FAMILIES["opt"]
    abstract = nnx.state(nnx.eval_shape(lambda: family.module(config, nnx.Rngs(0))))
    leaves = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(abstract)}
    table = family.flax_table if kind == "msgpack" else family.table
    assert table  # OPT has both.
    rng = np.random.default_rng(0)
    weight_map: dict[str, str] = {}
    for number, pieces in enumerate(_shards(conversion.expand(table, config, leaves)), 1):
        name = _NAMES[kind].format(number)
        tensors = {piece.theirs: rng.random(piece.shape, np.float32) for piece in pieces}
        _save(folder / name, kind, tensors)
        weight_map |= dict.fromkeys(tensors, name)
    (folder / _INDICES[kind]).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")
    return sum((folder / name).stat().st_size for name in set(weight_map.values()))


def measure(folder: pathlib.Path, num_processes: int, devices: int) -> list[dict[str, int]]:
    """What each of several processes, with `devices` forced CPU devices among them, took to load its shards.

    Raises:
        UserError: a process failed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}" if num_processes > 1 else ""
    package = str(pathlib.Path(knnprompt_jax.__file__).parents[1])
    forced = f"--xla_force_host_platform_device_count={devices // num_processes}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": forced, "PYTHONPATH": package}
    command = [sys.executable, "-m", "knnprompt_jax.benchmark.loading", str(folder), address, str(num_processes)]
    processes = [
        subprocess.Popen([*command, str(process)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for process in range(num_processes)
    ]
    outputs = [process.communicate() for process in processes]
    for process, (_, error) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise errors.UserError(f"a loading process failed: {error.decode().strip().splitlines()[-1]}")
    # Gloo writes lines of its own to standard output.
    return [json.loads(output[output.index(b'{"') :].splitlines()[0]) for output, _ in outputs]


def load(folder: pathlib.Path, address: str, num_processes: int, process_id: int) -> dict[str, int]:
    """Loads this process's shards on a mesh of 1 × all devices; the bytes they have, and those that loading took at most."""
    parallel.start(False, address, num_processes, process_id)
    mesh = parallel.make_mesh(1, jax.device_count())
    config, _ = registry.describe(str(folder))
    before = _status("VmRSS")
    model = checkpoints.load(folder, config, np.dtype(np.float32), sharding.placement(config, mesh))
    arrays = [leaf[...] for _, leaf in nnx.to_flat_state(nnx.state(model))]
    shards = [sum(shard.data.nbytes for shard in array.addressable_shards) for array in arrays]
    return {"shards": sum(shards), "largest": max(shards), "peak": _status("VmHWM") - before}


def render(found: Mapping[tuple[str, int], Any]) -> str:
    """A table of what `run` found, in GB of 10⁹ bytes: a row a process."""
    rows = [
        [kind, f"{count}", *(f"{number / 1e9:.2f}" for number in (size, one["shards"], one["largest"], one["peak"]))]
        for (kind, count), (size, processes) in found.items()
        for one in processes
    ]
    return tables.render(["files", "processes", "files, GB", "own shards", "of one array", "peak"], rows)


def _shards(pieces: list[conversion.Piece]) -> Iterator[list[conversion.Piece]]:
    """Pieces in groups of at most 300 MB."""
    group: list[conversion.Piece] = []
    for piece in pieces:
        if group and 4 * sum(math.prod(one.shape) for one in [*group, piece]) > SHARD_BYTES:
            yield group
            group = []
        group.append(piece)
    yield group


def _save(path: pathlib.Path, kind: str, tensors: dict[str, np.ndarray]) -> None:
    if kind == "safetensors":
        safetensors.numpy.save_file(tensors, path)
    elif kind == "msgpack":
        path.write_bytes(serialization.msgpack_serialize(traverse_util.unflatten_dict(tensors, sep=".")))
    else:
        import torch

        torch.save({key: torch.from_numpy(tensor) for key, tensor in tensors.items()}, path)


def _status(field: str) -> int:
    """Bytes, from Linux's account of this process."""
    text = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{field}:"))


if __name__ == "__main__":
    folder, address, num_processes, process_id = sys.argv[1:]
    print(json.dumps(load(pathlib.Path(folder), address, int(num_processes), int(process_id))), flush=True)
