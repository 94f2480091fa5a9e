"""Tokenizers of model folders and GGUF files, checked for what makes prompts go wrong."""

import json
import pathlib
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.models import plain_tokenizer
from knnprompt_jax.models.gguf import tokenizer as gguf_tokenizer


def load(path: pathlib.Path, of_prompts: bool = True) -> Any:
    """The tokenizer of a Hugging Face folder or a GGUF file; no code of theirs runs.

    Raises:
        UserError: there is none; or, where it is to make prompts, it ends every text with a token, after which no model says what
            comes next, or begins it with the same token twice.
    """
    tokenizer = gguf_tokenizer.load(path) if path.suffix == ".gguf" else _of_folder(path)
    if of_prompts:
        _check_prompts(path, tokenizer)
    return tokenizer


def _check_prompts(path: pathlib.Path, tokenizer: Any) -> None:
    bare, whole = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    first, last = whole[: len(whole) - len(bare)], whole[len(bare) :]

    def name(tokens: list[int]) -> str:
        return str(tokenizer.convert_ids_to_tokens(tokens[:1])[0])

    if bare and whole[-len(bare) :] != bare:
        raise errors.UserError(
            f"{path}: its tokenizer ends every text with {name(last[-1:])!r}, after which no model says what comes next: "
            "set add_eos_token to false, or take it out of the post-processor"
        )
    if len(set(first)) < len(first):
        raise errors.UserError(f"{path}: its tokenizer begins every text with {name(first)!r} twice")


def _of_folder(folder: pathlib.Path) -> Any:
    if tokenizer := plain_tokenizer.load(folder):
        return tokenizer
    import transformers

    # `AutoTokenizer` would find this class too, after importing PyTorch where there is one.
    kind = transformers.PreTrainedTokenizerFast if _is_plain(folder) else transformers.AutoTokenizer
    try:
        return kind.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise errors.UserError(
            f"{folder}: no usable tokenizer (tokenizer.json, or vocab.json and merges.txt): {reason}"
        ) from error


def _is_plain(folder: pathlib.Path) -> bool:
    """Whether a folder says that its tokenizer is all that tokenizer.json holds."""
    try:
        described = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        kind = described["tokenizer_class"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return kind == "TokenizersBackend" and "auto_map" not in described and (folder / "tokenizer.json").is_file()
