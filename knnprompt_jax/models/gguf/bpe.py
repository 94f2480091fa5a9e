"""Byte-level BPE from a GGUF file (`tokenizer.ggml.model` "gpt2").

`tokenizer.ggml.pre` names the rule that splits a text before merges. The rules are those of the published tokenizer.json files
for which llama.cpp's converter writes each name; llama.cpp has the same patterns in `src/llama-vocab.cpp`.
"""

import dataclasses

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _REST
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|\p{{N}}%s"
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
_NEOX = Split(composed=True)
SPLITS = {
    "gpt-2": Split(),
    "smollm": Split(digits_apart=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": dataclasses.replace(_LLAMA3, bos=False),  # Llama 3's without BOS, such as SmolLM3's.
    "dbrx": Split(_WORDS % "{1,3}"),  # OLMo 2, Phi-4.
    "qwen2": Split(_WORDS % "", composed=True),
    "olmo": _NEOX,  # Pythia: the same vocabulary as OLMo 1's and MPT's.
    "mpt": _NEOX,
    "gpt-4o": Split(_CASED % (f"{_ENDINGS}?", f"{_ENDINGS}?", "{1,3}")),  # Phi-4-mini.
    "tekken": Split(_CASED % ("", "", ""), whole_words=True, bos=True),  # Mistral Nemo.
}


def build(vocabulary: gguf_vocabulary.Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """Return the tokenizer without added tokens, and whether texts begin with BOS by default.

    Raises:
        UserError: no merges, an unknown split, or a blank before each text, which no published model of this kind has.
    """
    split = SPLITS[vocabulary.fields.choice("pre", None, SPLITS)]
    if vocabulary.merges is None:
        raise vocabulary.fields.wrong("merges", "not in the file")
    if vocabulary.fields.switch("add_space_prefix", False):
        raise vocabulary.fields.wrong("add_space_prefix", "true is not supported for byte-level BPE")
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary.ids(), vocabulary.merges, ignore_merges=split.whole_words))
    if split.composed:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = []
    if split.digits_apart:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if split.pattern:
        steps.append(pre_tokenizers.Split(tokenizers.Regex(split.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, split.bos
