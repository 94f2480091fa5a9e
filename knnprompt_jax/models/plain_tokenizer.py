"""Tokenizers that are all that their tokenizer.json holds, read without `transformers`: its import is a sixth of a short run."""

import functools
import json
import pathlib
from typing import Any

import tokenizers

_FILES = ("special_tokens_map.json", "added_tokens.json")
# Of tokenizer_config.json; others, and other values, change what a text's tokens are, or may.
_HARMLESS = ("backend", "bos_token", "eos_token", "unk_token", "pad_token", "model_max_length", "tokenizer_class")
_ANSWERED = {"return_attention_mask": (False,), "verbose": (False,), "add_special_tokens": (True, False)}
_MOST_TOKENS = 100_000  # Of a larger vocabulary `transformers` may change how texts are split.


class PlainTokenizer:
    """The tokens of texts; whatever else a tokenizer of `transformers` does, that of the same folder does when it is asked."""

    def __init__(self, folder: pathlib.Path, backend: tokenizers.Tokenizer):
        self._folder, self.backend_tokenizer = folder, backend

    def __call__(self, *texts: Any, **options: Any) -> Any:
        """As that of `transformers`; of a text, or of a list of texts, without all but the tokens."""
        batch = texts[0] if isinstance(texts[0], list) else [texts[0]]
        is_asked_more = len(texts) > 1 or not all(isinstance(text, str) for text in batch)
        if is_asked_more or any(value not in _ANSWERED.get(name, ()) for name, value in options.items()):
            return self._whole(*texts, **options)
        read = self.backend_tokenizer.encode_batch(batch, add_special_tokens=options.get("add_special_tokens", True))
        tokens = [encoding.ids for encoding in read]
        return {"input_ids": tokens if isinstance(texts[0], list) else tokens[0]}

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Protocols that it does not have, such as those of copying.
            raise AttributeError(name)
        return getattr(self._whole, name)

    @functools.cached_property
    def _whole(self) -> Any:
        import transformers

        return transformers.PreTrainedTokenizerFast.from_pretrained(self._folder, local_files_only=True)


def load(folder: pathlib.Path) -> PlainTokenizer | None:
    """The tokenizer of a folder, or None where there may be more to it than tokenizer.json."""
    try:
        described = dict(json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")))
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception:  # Of many kinds, that of `tokenizers` the broadest: `transformers` says what is wrong.
        return None
    named = [described[name] for name in described if name.endswith("_token") and described[name] is not None]
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    has_more = (
        described.get("tokenizer_class") != "TokenizersBackend",
        *(name not in _HARMLESS for name in described),
        *((folder / name).exists() for name in _FILES),
        *(token not in added for token in named),
        backend.post_processor is None or backend.truncation is not None or backend.padding is not None,
        backend.get_vocab_size() > _MOST_TOKENS,
    )
    return None if any(has_more) else PlainTokenizer(folder, backend)
