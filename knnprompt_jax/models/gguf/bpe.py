"""The two kinds of BPE in GGUF files: byte-level (`tokenizer.ggml.model` "gpt2") and SentencePiece's with byte fallback ("llama").

In byte-level BPE `tokenizer.ggml.pre` names the rule that splits a text before merges. The rules are those of the published
tokenizer.json files for which llama.cpp's converter writes each name; llama.cpp has the same patterns in `src/llama-vocab.cpp`.
In SentencePiece's (Llama 2, Mistral, Phi-3, Gemma) a text is one word in which "▁" replaces each blank.
"""

import dataclasses

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _REST
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|\p{{N}}%s"
_CASED += r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _REST

BLANK = "▁"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


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


def byte_level(vocabulary: gguf_vocabulary.Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
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


def sentencepiece(vocabulary: gguf_vocabulary.Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """Return the tokenizer without added tokens, and whether texts begin with BOS by default.

    Raises:
        UserError: the file has neither merges nor usable scores, or lacks tokens for bytes.
    """
    ids = {spell(vocabulary, token): id_ for token, id_ in vocabulary.ids().items()}
    missing = [byte for byte in _BYTES if byte not in ids]
    if missing:
        raise vocabulary.fields.wrong("tokens", f"{len(missing)} of 256 bytes are no tokens, such as {missing[0]}")
    merges = vocabulary.merges or _merges(vocabulary)
    unknown = vocabulary.tokens[vocabulary.roles["unk"]] if "unk" in vocabulary.roles else None
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", BLANK)]
    undo: list[decoders.Decoder] = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if has_prefix(vocabulary):
        steps.insert(0, normalizers.Prepend(BLANK))
        undo.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer, tokenizer.decoder = normalizers.Sequence(steps), decoders.Sequence(undo)
    return tokenizer, True


def has_prefix(vocabulary: gguf_vocabulary.Vocabulary) -> bool:
    """Return whether a blank is put before each text and each piece of text after an added token."""
    return vocabulary.fields.switch("add_space_prefix", True)


def spell(vocabulary: gguf_vocabulary.Vocabulary, token: str) -> str:
    """Return the token with "▁" for blanks, which llama.cpp's converter undoes in user-defined tokens (Gemma's)."""
    return token if has_prefix(vocabulary) else token.replace(" ", BLANK)


def _merges(vocabulary: gguf_vocabulary.Vocabulary) -> list[tuple[str, str]]:
    """Return each way to make a token of two others, the best tokens first.

    The best token has the highest score. In Gemma's files it has the lowest id: their scores are not in the order of merges.
    """
    usable = {
        spell(vocabulary, token): id_
        for id_, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if kind in (gguf_vocabulary.NORMAL, gguf_vocabulary.USER_DEFINED)
    }
    in_order = sorted(usable, key=usable.__getitem__)
    if vocabulary.arch not in ("gemma2", "gemma3"):
        normal = np.array(vocabulary.kinds) == gguf_vocabulary.NORMAL
        if vocabulary.scores is None or len(set(vocabulary.scores[normal].tolist())) < 2:
            raise vocabulary.fields.wrong("scores", "missing or all equal, and the file has no merges")
        scores = vocabulary.scores.tolist()
        in_order.sort(key=lambda token: -scores[usable[token]])
    return [
        (token[:cut], token[cut:])
        for token in in_order
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in usable and token[cut:] in usable
    ]
