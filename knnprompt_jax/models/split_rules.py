"""The rules by which published byte-level tokenizers split a text before merges, by their names in GGUF files.

They are the rules of the published tokenizer.json files for which llama.cpp's converter writes each name. llama.cpp has
the same patterns in `src/llama-vocab.cpp`.
"""

import dataclasses

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _REST
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
_CASED += r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _REST


@dataclasses.dataclass(frozen=True)
class Split:
    """A rule to split texts: GPT-2's, or `pattern`.

    `whole_words`: a word that is itself a token is not split, even if no merges make it. `bos`: llama.cpp's default.
    """

    pattern: str | None = None
    digits_apart: bool = False
    composed: bool = False  # Unicode's normal form C comes first.
    whole_words: bool = False
    bos: bool = False


_LLAMA3 = Split(_WORDS % "{1,3}", whole_words=True, bos=True)
SPLITS = {
    "gpt-2": Split(),
    "smollm": Split(digits_apart=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": dataclasses.replace(_LLAMA3, bos=False),  # Llama 3's without BOS.
    "dbrx": Split(_WORDS % "{1,3}"),  # Phi-4, in files that call it a Llama.
    "qwen2": Split(_WORDS % "", composed=True),
    "tekken": Split(_CASED, whole_words=True, bos=True),  # Mistral Nemo.
}
