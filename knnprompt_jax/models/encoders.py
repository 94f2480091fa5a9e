"""Sentence encoders map texts to vectors whose cosine measures similarity: a BERT and its published pooling."""

import functools
import json
import pathlib
import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import errors, parallel
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, hub, registry, tokenizers
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.prompts import sequences

Array = jax.Array
# Poolings that files lack, by the last part of the name: unsupervised SimCSE trains a layer on the first token's state
# and drops it afterwards (Gao, Yao, Chen: "SimCSE", EMNLP 2021, and its README).
PUBLISHED_POOLING = {"unsup-simcse-bert-base-uncased": "cls", "unsup-simcse-bert-large-uncased": "cls"}
_OLDER_NAMES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_MODULES = ("Transformer", "Pooling", "Normalize")
_FOLDERS = {"Transformer": "", "Pooling": "[0-9]+_Pooling"}
_KEPT_BYTES = 2**30  # Of the embeddings that `embed` keeps, per encoder.


def token_mean(hidden_BTD: Array, lengths_B: Array) -> Array:
    """Return the mean state [B, D] of each sequence's tokens, without padding."""
    mask_BT = jnp.arange(hidden_BTD.shape[1]) < lengths_B[:, None]
    return jnp.einsum("btd,bt->bd", hidden_BTD, mask_BT.astype(hidden_BTD.dtype)) / lengths_B[:, None]


# "cls" is the state of the first token, [CLS], before BERT's pooler.
POOLINGS = {"mean": token_mean, "cls": lambda hidden_BTD, lengths_B: hidden_BTD[:, 0]}


class SentenceEncoder:
    """A BERT with its tokenizer, its pooling (a key of `POOLINGS`) and the maximum tokens of a text."""

    def __init__(self, name_or_folder: str, pooling: str = ""):
        """Load an encoder from a Hub name or a folder. `pooling` is "mean" or "cls"; the default is the published one.

        Raises:
            UserError: as `describe`, or damaged weight files.
        """
        self.config, folder, self.pooling, longest = describe(name_or_folder, pooling)
        self.tokenizer = tokenizers.load(folder, for_prompts=False, vocab_size=self.config.vocab_size)
        self.max_length = int(min(longest, self.tokenizer.model_max_length))
        if self.max_length <= (special := len(self.tokenizer("")["input_ids"])):
            raise errors.UserError(
                f"{folder}: texts of {self.max_length} tokens hold only the {special} special tokens"
            )
        self._graph, self._params = nnx.split(checkpoints.load(folder, self.config, jnp.float32))
        self._batch_tokens = 1024 if parallel.platform() == "cpu" else 16384
        self.known: dict[str, np.ndarray] = {}  # The last embeddings that `embed` has computed.

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors [N, D] (float32) of N texts; only the first tokens of a long text count."""
        vectors_ND = np.zeros((len(texts), self.config.width), np.float32)
        if not len(texts):
            return vectors_ND
        tokens = self.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]
        lengths_N = np.array([len(sequence) for sequence in tokens])
        num_longest = max(1, self._batch_tokens // self.max_length)
        for batch, rows, width in sequences.batches(lengths_N, num_longest, self.max_length):
            padded = sequences.pad([tokens[index] for index in batch], rows, width)
            vectors_ND[batch] = _pooled(self._graph, self.pooling, self._params, *padded)[: len(batch)]
        return vectors_ND


def embed(name_or_folder: str, pooling: str, texts: Sequence[str]) -> np.ndarray:
    """Return the embeddings [N, D] of N texts, of length 1. The process keeps the last ones, up to 1 GiB.

    Raises:
        UserError: as `SentenceEncoder`.
    """
    encoder = _load(name_or_folder, pooling)
    known = encoder.known
    new = [text for text in dict.fromkeys(texts) if text not in known]
    vectors_ND = encoder.encode(new)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=-1, keepdims=True).clip(1e-12)
    known.update(zip(new, map(np.copy, vectors_ND), strict=True))  # A view would keep its batch.
    found_ND = np.stack([known[text] for text in texts])
    limit = _KEPT_BYTES // found_ND[0].nbytes
    if len(known) > limit:
        # A new dictionary, because other threads may still read the old one.
        encoder.known = dict(list(known.items())[len(known) - limit // 2 :])
    return found_ND


_load = functools.cache(SentenceEncoder)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _pooled(graph: nnx.GraphDef, pooling: str, params: nnx.State, tokens_BT: Array, lengths_B: Array) -> Array:
    # Full float32 products: accelerators otherwise round the operands to fewer bits.
    with jax.default_matmul_precision("highest"):
        hidden_BTD = nnx.merge(graph, params)(tokens_BT, lengths_B, jnp.zeros_like(tokens_BT))
        return POOLINGS[pooling](hidden_BTD, lengths_B)


def describe(name_or_folder: str, pooling: str = "") -> tuple[config_lib.DecoderConfig, pathlib.Path, str, int]:
    """Return the BERT of an encoder, the folder with its weights, its pooling, and the maximum tokens of a text.

    The files are those of `sentence-transformers`: modules.json, two files of options, and the folder of a Pooling
    module. The argument `pooling` overrides them.

    Raises:
        UserError: an unknown model or one of another kind, unsupported modules or pooling, no pooling at all, or a
            default prompt, which would precede every text.
    """
    config, folder = registry.describe(name_or_folder, families=registry.ENCODERS)
    modules = _modules(folder / "modules.json")
    pooling = pooling or PUBLISHED_POOLING.get(hub.base_name(name_or_folder), "")
    if not pooling and "Pooling" in modules:
        pooling = _pooling(folder / modules["Pooling"])
    if not pooling:
        raise errors.UserError(
            f"{folder}: no modules.json with the pooling of this encoder: choose pooling mean or cls"
        )
    if pooling not in POOLINGS:
        raise errors.UserError(f"pooling={pooling!r}: choose from {', '.join(POOLINGS)}")
    described = _fields(folder / "config_sentence_transformers.json")
    default = described.value("default_prompt_name")
    if (described.table("prompts") or {}).get(default):
        raise errors.UserError(
            f"{described.path}: the default prompt {default!r} is not supported; only texts alone are"
        )
    described = _fields(folder / "sentence_bert_config.json")
    described.require("do_lower_case", False)  # BERT's tokenizer has a switch of its own.
    longest = described.size("max_seq_length", config.num_positions)
    return config, folder, pooling, min(longest, config.num_positions)


def _fields(path: pathlib.Path) -> hf_config.Fields:
    """Return the fields of a JSON file; none if it does not exist."""
    return hf_config.Fields(hf_config.read_object(path) if path.exists() else {}, str(path))


def _modules(path: pathlib.Path) -> dict[str, str]:
    """Return the folder of each module by its class name; nothing without modules.json."""
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        modules = {entry["type"].rsplit(".", 1)[-1]: entry["path"] for entry in entries}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise errors.UserError(f"{path}: not a list of modules: {error}") from None
    for name, subfolder in modules.items():
        if name not in _MODULES:
            raise errors.UserError(f"{path}: module {name} is not supported; choices: {', '.join(_MODULES)}")
        expected = _FOLDERS.get(name)  # The fingerprint has the files of these folders.
        if expected is not None and not (isinstance(subfolder, str) and re.fullmatch(expected, subfolder)):
            raise errors.UserError(f"{path}: the path {subfolder!r} of module {name} is not supported")
    return modules


def _pooling(folder: pathlib.Path) -> str:
    """Return the pooling in a Pooling module's config.json: older files have a switch for each, newer files a name."""
    described = hf_config.read(folder)
    older = [key for key, on in described.items() if key.startswith("pooling_mode_") and on is True]
    modes = described.get("pooling_mode", older)
    modes = [_OLDER_NAMES.get(mode, mode) for mode in map(str, modes if isinstance(modes, list) else [modes])]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise errors.UserError(
            f"{folder}/config.json: pooling {modes} is not supported; choices: {', '.join(POOLINGS)}"
        )
    return modes[0]
