"""Sentence encoders map texts to vectors whose cosine measures similarity: a BERT and its published pooling."""

import functools
import json
import pathlib
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hub, registry, tokenizers

Array = jax.Array
# Poolings that files lack, by the last part of the name: unsupervised SimCSE trains a layer on the first token's state
# and drops it afterwards (Gao, Yao, Chen: "SimCSE", EMNLP 2021, and its README).
PUBLISHED_POOLING = {"unsup-simcse-bert-base-uncased": "cls", "unsup-simcse-bert-large-uncased": "cls"}
_OLDER_NAMES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_MODULES = ("Transformer", "Pooling", "Normalize")
_SMALLEST_WIDTH = 32  # Tokens.
_KEPT_TEXTS = 100_000


def token_mean(hidden_BTD: Array, lengths_B: Array) -> Array:
    """Return the mean state [B, D] of each sequence's tokens, without padding."""
    mask_BT = jnp.arange(hidden_BTD.shape[1]) < lengths_B[:, None]
    return jnp.einsum("btd,bt->bd", hidden_BTD, mask_BT.astype(hidden_BTD.dtype)) / lengths_B[:, None]


# "cls" is the state of the first token, [CLS], before BERT's pooler.
POOLINGS = {"mean": token_mean, "cls": lambda hidden_BTD, lengths_B: hidden_BTD[:, 0]}


class SentenceEncoder:
    """A BERT with its tokenizer, its pooling (a key of `POOLINGS`) and the maximum tokens of a text."""

    def __init__(self, name_or_folder: str):
        """Load an encoder from a Hub name or a folder.

        Raises:
            UserError: as `describe`, or damaged weight files.
        """
        self.config, folder, self.pooling, longest = describe(name_or_folder)
        self.tokenizer = tokenizers.load(folder, for_prompts=False, vocab_size=self.config.vocab_size)
        self.max_length = int(min(longest, self.tokenizer.model_max_length))
        self._graph, self._params = nnx.split(registry.load(folder, self.config, jnp.float32))
        self.known: dict[str, np.ndarray] = {}  # The last embeddings that `embed` has computed.
        self._batch_tokens = 1024 if parallel.platform() == "cpu" else 16384

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors [N, D] (float32) of N texts; only the first tokens of a long text count."""
        vectors_ND = np.zeros((len(texts), self.config.width), np.float32)
        if not len(texts):
            return vectors_ND
        tokens = self.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]
        lengths_N = np.array([len(sequence) for sequence in tokens])
        num_longest = max(1, self._batch_tokens // self.max_length)
        for batch, rows, width in batches(lengths_N, num_longest, self.max_length):
            padded = pad([tokens[index] for index in batch], rows, width)
            vectors_ND[batch] = _pooled(self._graph, self.pooling, self._params, *padded)[: len(batch)]
        return vectors_ND


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


_load = functools.cache(SentenceEncoder)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _pooled(graph: nnx.GraphDef, pooling: str, params: nnx.State, tokens_BT: Array, lengths_B: Array) -> Array:
    # Full float32 products: accelerators otherwise round the operands to fewer bits.
    with jax.default_matmul_precision("highest"):
        hidden_BTD = nnx.merge(graph, params)(tokens_BT, lengths_B, jnp.zeros_like(tokens_BT))
        return POOLINGS[pooling](hidden_BTD, lengths_B)


def describe(name_or_folder: str) -> tuple[config_lib.DecoderConfig, pathlib.Path, str, int]:
    """Return the BERT of an encoder, the folder with its weights, its pooling, and the maximum tokens of a text.

    The files are those of `sentence-transformers`: modules.json, two files of options, and the folder of a Pooling
    module.

    Raises:
        UserError: an unknown model or one of another kind, unsupported modules or pooling, no pooling at all, or a
            default prompt, which would precede every text.
    """
    config, folder = registry.describe(name_or_folder, families=registry.ENCODERS)
    pooling = PUBLISHED_POOLING.get(hub.base_name(name_or_folder)) or _read_pooling(folder)
    if pooling not in POOLINGS:
        raise errors.UserError(f"{folder}: pooling={pooling!r} is not supported; supported: {', '.join(POOLINGS)}")
    described = _fields(folder / "config_sentence_transformers.json")
    default = described.value("default_prompt_name")
    if (described.table("prompts") or {}).get(default):
        raise described.wrong("default_prompt_name", "a prompt before every text is not supported")
    described = _fields(folder / "sentence_bert_config.json")
    described.require("do_lower_case", False)  # BERT's tokenizer has a switch of its own.
    longest = described.size("max_seq_length", config.num_positions)
    return config, folder, pooling, min(longest, config.num_positions)


def _fields(path: pathlib.Path) -> config_lib.Fields:
    """Return the fields of a JSON file; none if it does not exist."""
    return config_lib.Fields(config_lib.read(path) if path.exists() else {}, str(path))


def _read_pooling(folder: pathlib.Path) -> str:
    """Return the pooling of a folder's Pooling module: older files have a switch for each, newer files a name.

    Without modules.json, return "".
    """
    path = folder / "modules.json"
    if not path.exists():
        return ""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        modules = {entry["type"].rsplit(".", 1)[-1]: folder / entry["path"] for entry in entries}
    except (ValueError, LookupError, TypeError) as error:
        raise errors.UserError(f"{path}: not a list of modules: {error}") from None
    if unknown := modules.keys() - _MODULES:
        raise errors.UserError(f"{path}: module {min(unknown)} is not supported; choices: {', '.join(_MODULES)}")
    described = config_lib.read(modules.get("Pooling", folder) / "config.json")
    older = [key for key, on in described.items() if key.startswith("pooling_mode_") and on is True]
    modes = described.get("pooling_mode", older)
    names = [_OLDER_NAMES.get(mode, mode) for mode in map(str, modes if isinstance(modes, list) else [modes])]
    return names[0] if len(names) == 1 else str(names)


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
