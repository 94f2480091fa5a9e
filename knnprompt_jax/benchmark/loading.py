"""How much host memory loading takes: a checkpoint of random weights made on the spot, processes that load their shards of it.

What is counted is the peak resident set of a process less what it held before, mapped pages of the files included.
"""

import dataclasses
import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import huggingface_hub
import jax
import numpy as np
import safetensors.numpy
from flax import nnx, serialization, traverse_util

import knnprompt_jax
from knnprompt_jax import errors, options, parallel, tables
from knnprompt_jax.models import checkpoints, conversion, registry, sharding

WIDTH, HEADS = 1280, 16
_SHARD_BYTES = 300 * 10**6
_NAMES = {
    "safetensors": "model{suffix}.safetensors",
    "msgpack": "flax_model{suffix}.msgpack",
    "bin": "pytorch_model{suffix}.bin",
}


@dataclasses.dataclass(frozen=True)
class LoadingSettings(options.Options):
    """What is loaded, and by how many processes."""

    files: tuple[str, ...] = options.option(
        ("safetensors",), "Kinds of files; those of bin need torch.", choices=_NAMES, needed=True
    )
    gigabytes: float = options.option(2.1, "Float32 weights of at least so many GB, made on the spot.", least=0)
    processes: tuple[int, ...] = options.option(
        (1, 2), "Numbers of processes, of which each loads its part of the shards.", least=1, needed=True
    )
    devices: int = options.option(
        8, "Devices over which the weights are split, those of all processes together.", least=1
    )
    folder: str = options.option(
        "", "Where checkpoints are made and removed again; empty: the folder for temporary files."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if HEADS % self.devices:
            raise errors.UserError(f"devices={self.devices}: choose a number that divides the model's {HEADS} heads")
        if indivisible := [count for count in self.processes if self.devices % count]:
            raise errors.UserError(f"processes={indivisible[0]}: choose numbers that divide devices={self.devices}")


def run(settings: LoadingSettings) -> str:
    """A table in GB of 10⁹ bytes, with a row for each process that loads its shards.

    Raises UserError where a process failed.
    """
    rows = []
    for kind in settings.files:
        with tempfile.TemporaryDirectory(dir=settings.folder or None) as name:
            folder = pathlib.Path(name) / "model"
            size = write_checkpoint(folder, settings.gigabytes, kind)
            for count in settings.processes:
                for taken in measure(folder, count, settings.devices):
                    numbers = size, taken["shards"], taken["largest"], taken["peak"]
                    rows.append([kind, str(count), *(f"{number / 1e9:.2f}" for number in numbers)])
    return tables.render(["files", "processes", "files, GB", "its shards", "of one array", "peak"], rows)


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
    state = nnx.state(registry.abstract(config, np.dtype(np.float32)))
    leaves = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(state)}
    table = family.flax_table if kind == "msgpack" else family.table
    pieces = {piece.theirs: piece for piece in conversion.expand(table, config, leaves)}
    shards = huggingface_hub.split_state_dict_into_shards_factory(
        pieces,
        get_storage_size=lambda piece: 4 * math.prod(piece.shape),
        filename_pattern=_NAMES[kind],
        max_shard_size=_SHARD_BYTES,
    )
    rng = np.random.default_rng(0)
    for name, keys in shards.filename_to_tensors.items():
        _save(folder / name, kind, {key: rng.random(pieces[key].shape, np.float32) for key in keys})
    index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
    (folder / f"{_NAMES[kind].format(suffix='')}.index.json").write_text(json.dumps(index), encoding="utf-8")
    return sum((folder / name).stat().st_size for name in shards.filename_to_tensors)


def measure(folder: pathlib.Path, num_processes: int, devices: int) -> list[dict[str, int]]:
    """What each of several processes, with `devices` forced CPU devices among them, took to load its shards.

    Raises UserError where a process failed.
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
