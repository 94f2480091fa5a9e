"""Sentence encoders map texts to vectors whose cosine measures similarity: transformer, pooling, dense layers."""

import functools
import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, struct
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hub, registry, sharding, tokenizers

Array = jax.Array
# Poolings that files lack, by the last part of the name: unsupervised SimCSE trains a layer on the first token's state
# and drops it afterwards (Gao, Yao, Chen: "SimCSE", EMNLP 2021, and its README).
PUBLISHED_POOLING = {"unsup-simcse-bert-base-uncased": "cls", "unsup-simcse-bert-large-uncased": "cls"}
_OLDER_NAMES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_MODULES = r"Transformer Pooling( Dense)*( Normalize)?"
_PROMPT = "Classification"  # Its name in config_sentence_transformers.json.
_ACTIVATIONS = {"torch.nn.modules.linear.Identity": lambda x: x, "torch.nn.modules.activation.Tanh": jnp.tanh}
_SMALLEST_WIDTH = 32  # Tokens.
_KEPT_TEXTS = 100_000


def token_mean(hidden_BTD: Array, lengths_B: Array) -> Array:
    """Return the mean state [B, D] of each sequence's tokens, without padding."""
    mask_BT = jnp.arange(hidden_BTD.shape[1]) < lengths_B[:, None]
    return jnp.einsum("btd,bt->bd", hidden_BTD, mask_BT.astype(hidden_BTD.dtype)) / lengths_B[:, None]


# "cls" is the state of the first token, [CLS], before BERT's pooler.
POOLINGS = {"mean": token_mean, "cls": lambda hidden_BTD, lengths_B: hidden_BTD[:, 0]}


@struct.dataclass
class Dense:
    """A layer after the pooling, from E to F numbers; `activation` is a key of `_ACTIVATIONS`."""

    kernel_FE: np.ndarray | Array
    bias_F: np.ndarray | Array
    activation: str = struct.field(pytree_node=False)

    def __call__(self, x_BE: Array) -> Array:
        return _ACTIVATIONS[self.activation](x_BE @ self.kernel_FE.T + self.bias_F)


class Description(NamedTuple):
    """The parts of a sentence encoder.

    Attributes:
        config: the transformer.
        folder: the folder with its weights.
        pooling: a key of `POOLINGS`.
        dense: the layers after the pooling.
        prompt: the beginning of every text.
        max_length: the maximum tokens of a text, if its tokenizer has no lower maximum.
    """

    config: config_lib.DecoderConfig
    folder: pathlib.Path
    pooling: str
    dense: tuple[Dense, ...]
    prompt: str
    max_length: int


class SentenceEncoder:
    """A sentence encoder with its tokenizer. Each of this process's devices has all weights and a share of a batch."""

    def __init__(self, name_or_folder: str, dtype: str = "float32"):
        """Load an encoder from a Hub name or a folder; `dtype` is that of the transformer.

        Raises:
            UserError: as `describe`, or damaged weight files.
        """
        config, folder, self.pooling, dense, self.prompt, longest = describe(name_or_folder)
        self.tokenizer = tokenizers.load(folder, for_prompts=False, vocab_size=config.vocab_size)
        self.max_length = int(min(longest, self.tokenizer.model_max_length))
        self._mesh = parallel.make_mesh_on(jax.local_devices(), jax.local_device_count(), 1)
        placement = sharding.placement(config, self._mesh)
        self._graph, self._params = nnx.split(registry.load(folder, config, jnp.dtype(dtype), placement))
        self._dense = jax.device_put(dense, jax.NamedSharding(self._mesh, P()))
        self.width = len(dense[-1].bias_F) if dense else config.width
        self.known: dict[str, np.ndarray] = {}  # The last embeddings that `embed` has computed.
        self._batch_tokens = 1024 if parallel.platform() == "cpu" else 16384  # Of one device.

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors [N, F] (float32) of N texts; only the first tokens of a long text count."""
        vectors_NF = np.zeros((len(texts), self.width), np.float32)
        if not len(texts):
            return vectors_NF
        prompted = [self.prompt + text for text in texts]
        encoded = self.tokenizer(prompted, truncation=True, max_length=self.max_length)
        tokens = [ids or [0] for ids in encoded["input_ids"]]  # An empty text may have no tokens.
        lengths_N = np.array([len(sequence) for sequence in tokens])
        num_longest = self._mesh.size * max(1, self._batch_tokens // self.max_length)
        for batch, rows, width in batches(lengths_N, num_longest, self.max_length):
            padded = pad([tokens[index] for index in batch], rows, width)
            placed = [parallel.put(array, self._mesh, P(parallel.DATA)) for array in padded]
            vectors_NF[batch] = _pooled(self._graph, self.pooling, self._params, self._dense, *placed)[: len(batch)]
        return vectors_NF


@functools.cache
def _load(name_or_folder: str) -> SentenceEncoder:
    """Return an encoder, which the process keeps."""
    return SentenceEncoder(name_or_folder)


def embed(name_or_folder: str, texts: Sequence[str]) -> np.ndarray:
    """Return the embeddings [N, D] of N texts, of length 1. The process keeps those of some 100,000 texts.

    Raises:
        UserError: as `SentenceEncoder`.
    """
    encoder = _load(name_or_folder)
    # A new dictionary, because other threads may still read the old one.
    known = encoder.known if len(encoder.known) < _KEPT_TEXTS else {}
    new = [text for text in dict.fromkeys(texts) if text not in known]
    vectors_ND = encoder.encode(new)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=-1, keepdims=True).clip(1e-12)
    known.update(zip(new, map(np.copy, vectors_ND), strict=True))  # A view would keep its batch.
    encoder.known = known
    return np.stack([known[text] for text in texts])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _pooled(
    graph: nnx.GraphDef, pooling: str, params: nnx.State, dense: tuple[Dense, ...], tokens_BT: Array, lengths_B: Array
) -> Array:
    # Full float32 products: accelerators otherwise round the operands to fewer bits.
    with jax.default_matmul_precision("highest"):
        hidden_BTD = nnx.merge(graph, params)(tokens_BT, lengths_B)
        vectors_BF = POOLINGS[pooling](hidden_BTD, lengths_B)
        for layer in dense:
            vectors_BF = layer(vectors_BF)
        return vectors_BF


def describe(name_or_folder: str) -> Description:
    """Return the parts of an encoder.

    The files are those of `sentence-transformers`: modules.json, two files of options, and the folders of Pooling and
    Dense modules.

    Raises:
        UserError: an unknown model or one of another kind, unsupported modules, pooling or activation, or no pooling.
    """
    config, folder = registry.describe(name_or_folder, families=registry.SENTENCE_ENCODERS)
    modules = _read_modules(folder)
    pooling = PUBLISHED_POOLING.get(hub.base_name(name_or_folder)) or (_read_pooling(modules[1][1]) if modules else "")
    if pooling not in POOLINGS:
        raise errors.UserError(f"{folder}: pooling={pooling!r} is not supported; supported: {', '.join(POOLINGS)}")
    dense: list[Dense] = []
    for kind, module in modules:
        if kind == "Dense":
            dense.append(_read_dense(module, len(dense[-1].bias_F) if dense else config.width))
    described = _fields(folder / "config_sentence_transformers.json")
    prompts = described.table("prompts") or {}
    prompt = prompts.get(_PROMPT, prompts.get(described.value("default_prompt_name")))
    described = _fields(folder / "sentence_bert_config.json")
    described.require("do_lower_case", False)  # BERT's tokenizer has a switch of its own.
    longest = described.size("max_seq_length", config.num_positions)
    return Description(config, folder, pooling, tuple(dense), prompt or "", min(longest, config.num_positions))


def _fields(path: pathlib.Path) -> config_lib.Fields:
    """Return the fields of a JSON file; none if it does not exist."""
    return config_lib.Fields(config_lib.read(path) if path.exists() else {}, str(path))


def _read_modules(folder: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Return the kind and the folder of each module; none without modules.json."""
    path = folder / "modules.json"
    if not path.exists():
        return []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        modules = [(entry["type"].rsplit(".", 1)[-1], folder / entry["path"]) for entry in entries]
    except (ValueError, LookupError, TypeError) as error:
        raise errors.UserError(f"{path}: not a list of modules: {error}") from None
    if not re.fullmatch(_MODULES, kinds := " ".join(kind for kind, _ in modules)):
        raise errors.UserError(f"{path}: modules {kinds!r} are not supported; supported: {_MODULES}")
    return modules


def _read_pooling(folder: pathlib.Path) -> str:
    """Return the pooling of a Pooling module: older files have a switch for each, newer files a name."""
    described = _fields(folder / "config.json")
    described.require("include_prompt", True)
    older = [key for key, on in described.values.items() if key.startswith("pooling_mode_") and on is True]
    modes = described.value("pooling_mode", older)
    names = [_OLDER_NAMES.get(mode, mode) for mode in map(str, modes if isinstance(modes, list) else [modes])]
    return names[0] if len(names) == 1 else str(names)


def _read_dense(folder: pathlib.Path, width: int) -> Dense:
    """Return the layer of a Dense module that follows `width` numbers."""
    described = _fields(folder / "config.json")
    activation = described.choice("activation_function", "torch.nn.modules.activation.Tanh", _ACTIVATIONS)
    described.require("in_features", width)
    described.require("use_residual", False)
    for name in ("module_input_name", "module_output_name"):
        described.require(name, "sentence_embedding")
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (described.size("out_features"), width)}
    if described.switch("bias", True):
        shapes["linear.bias"] = shapes["linear.weight"][:1]
    path = folder / "model.safetensors"
    arrays = {tensor.key: tensor.view().astype(np.float32) for tensor in registry.read_header(path)}
    if (found := {key: array.shape for key, array in arrays.items()}) != shapes:
        raise errors.UserError(f"{path}: its tensors are {found} and should be {shapes}")
    kernel_FE = arrays["linear.weight"]
    return Dense(kernel_FE, arrays.get("linear.bias", np.zeros(len(kernel_FE), np.float32)), activation)


def pad(sequences: Sequence[Sequence[int]], rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens [rows, width] and lengths [rows] of at most `rows` sequences; each unused row has one token, 0."""
    tokens_BT = np.zeros((rows, width), np.int32)
    lengths_B = np.ones(rows, np.int32)
    for row, sequence in enumerate(sequences):
        tokens_BT[row, : len(sequence)] = sequence
        lengths_B[row] = len(sequence)
    return tokens_BT, lengths_B


def batches(lengths_N: np.ndarray, rows: int, longest: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the sequences of each batch as (indices, rows, width).

    Widths are powers of two from 32 up to `longest`, so that a few shapes serve any number of texts. A batch of width
    `longest` has `rows` rows; narrower batches have proportionally more.
    """
    widths_N = np.minimum(longest, np.maximum(_SMALLEST_WIDTH, 2 ** np.ceil(np.log2(lengths_N)).astype(int)))
    for width in np.unique(widths_N).tolist():
        members = np.flatnonzero(widths_N == width)
        size = rows * (longest // width)
        for start in range(0, len(members), size):
            yield members[start : start + size], size, width
