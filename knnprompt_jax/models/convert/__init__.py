"""Convert models in foreign formats once: GGUF files, PyTorch's pytorch_model.bin and Flax's flax_model.msgpack.

The result is an ordinary Hugging Face folder in the user's cache folder: model.safetensors, config.json and the files
of the tokenizer. The rest of the package reads only such folders. Quantised numbers become float32; other numbers
keep their dtype.
"""

import functools
import json
import math
import pathlib
import pickle
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from knnprompt_jax.common import errors, files

DTYPES = {
    **{"F64": np.dtype(np.float64), "F32": np.dtype(np.float32)},
    **{"F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)},
}
"""The dtypes of weights by their names in safetensors files."""
ALIGNMENT = 64  # Bytes.


class Tensor(NamedTuple):
    """A tensor to convert; `read` returns its numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]


def write_folder(
    target: pathlib.Path, source: pathlib.Path, weights: list[pathlib.Path], small: list[pathlib.Path]
) -> None:
    """Write the converted folder beside `target`, then rename it."""
    draft = files.draft(target)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        for path in small:
            (draft / path.relative_to(source)).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, draft / path.relative_to(source))
        if source.suffix == ".gguf":
            from knnprompt_jax.models.convert import gguf_model, gguf_tokenizer

            header = gguf_model.read(source)
            (draft / "config.json").write_text(json.dumps(gguf_model.config_json(header), indent=2), encoding="utf-8")
            gguf_tokenizer.convert(header, draft)
            tensors = gguf_model.tensors(header)
        else:
            read = _read_flax if weights[0].suffix == ".msgpack" else _read_torch
            tensors = (tensor for path in weights for tensor in read(path))
        _write_weights(draft / "model.safetensors", tensors)
        draft.rename(target)
    except (errors.UserError, OSError):
        raise
    except Exception as error:  # The readers of foreign formats raise whatever damaged bytes lead to.
        raise errors.UserError(f"{source}: it cannot be converted (damaged?): {errors.one_line(error)}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_weights(path: pathlib.Path, tensors: Iterable[Tensor]) -> None:
    """Write floating-point tensors one after the other; of mapped files, one is in memory. Others are no weights.

    https://huggingface.co/docs/safetensors describes the format. Blanks after the header align the numbers.
    """
    names = {dtype: name for name, dtype in DTYPES.items()}
    kept = [tensor for tensor in tensors if tensor.dtype in names]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in kept:
        start = end
        end += math.prod(tensor.shape) * tensor.dtype.itemsize
        header[tensor.name] = {"dtype": names[tensor.dtype], "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in kept:
            stream.write(np.ascontiguousarray(tensor.read()).view(np.uint8).data)


def _read_torch(file: pathlib.Path) -> Iterator[Tensor]:
    """Yield the tensors of a state dict. No code in the file runs."""
    try:
        import torch
    except ImportError:
        advice = "`pip install torch`, or convert it to safetensors"
        raise errors.UserError(f"{file}: reading it needs PyTorch: {advice}") from None
    try:
        mapped = zipfile.is_zipfile(file)  # Files of PyTorch before 1.6 are none.
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except (pickle.UnpicklingError, OSError):  # PyTorch's own message tells how to run the code.
        raise errors.UserError(f"{file}: it holds code or is damaged; use safetensors instead") from None
    for name, tensor in ((name, tensor.detach().contiguous()) for name, tensor in state.items()):
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        # NumPy has no bfloat16: the bits are passed as integers.
        bits = tensor.view(torch.int16) if dtype == ml_dtypes.bfloat16 else tensor
        yield Tensor(name, tuple(tensor.shape), dtype, functools.partial(bits.numpy().view, dtype))


def _read_flax(file: pathlib.Path) -> Iterator[Tensor]:
    """Yield the tensors under the names of PyTorch, whose kernels are transposed. No code in the file runs."""
    from flax import serialization, traverse_util

    state = traverse_util.flatten_dict(serialization.msgpack_restore(file.read_bytes()))
    for (*path, kind), array in state.items():
        array = np.asarray(array.T if kind == "kernel" else array)
        name = ".".join([*path, "weight" if kind in ("kernel", "scale", "embedding") else kind])
        yield Tensor(name, array.shape, array.dtype, array.view)
