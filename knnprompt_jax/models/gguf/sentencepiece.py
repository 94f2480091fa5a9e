"""SentencePiece's BPE with bytes for unknown characters from a GGUF file (`tokenizer.ggml.model` "llama").

Llama 2, Mistral, Phi-3 and Gemma: the text is one word in which "▁" stands for blanks.
"""

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers

from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

BLANK = "▁"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_GEMMA = ("gemma2", "gemma3")


def build(vocabulary: gguf_vocabulary.Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """The tokenizer without added tokens, and whether texts start with BOS where the file does not say.

    Raises:
        UserError: neither merges nor scores to make them from, or bytes that are no tokens.
    """
    numbers = {spell(vocabulary, token): number for token, number in vocabulary.numbers().items()}
    missing = [byte for byte in _BYTES if byte not in numbers]
    if missing:
        raise vocabulary.fields.wrong("tokens", f"{len(missing)} of 256 bytes are no tokens, such as {missing[0]}")
    merges = vocabulary.merges or _merges(vocabulary, numbers)
    unknown = vocabulary.tokens[vocabulary.roles["unk"]] if "unk" in vocabulary.roles else None
    tokenizer = tokenizers.Tokenizer(models.BPE(numbers, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", BLANK)]
    undo: list[decoders.Decoder] = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if has_prefix(vocabulary):
        steps.insert(0, normalizers.Prepend(BLANK))
        undo.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer, tokenizer.decoder = normalizers.Sequence(steps), decoders.Sequence(undo)
    return tokenizer, True


def has_prefix(vocabulary: gguf_vocabulary.Vocabulary) -> bool:
    """Whether every text, and every piece of it after an added token, is read as if a blank stood before it."""
    return vocabulary.fields.switch("add_space_prefix", True)


def spell(vocabulary: gguf_vocabulary.Vocabulary, token: str) -> str:
    """As the token is looked up: llama.cpp's converter writes blanks as such in those that users define (Gemma's)."""
    return token if has_prefix(vocabulary) else token.replace(" ", BLANK)


def _merges(vocabulary: gguf_vocabulary.Vocabulary, numbers: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to put a token together from two, the best tokens first.

    The best has the highest score, in Gemma's files the lowest number: there the scores are not in the order of merges.
    """
    usable = {
        spell(vocabulary, token): number
        for number, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if kind in (gguf_vocabulary.NORMAL, gguf_vocabulary.USER_DEFINED)
    }
    in_order = sorted(usable, key=usable.__getitem__)
    if vocabulary.arch not in _GEMMA:
        scores = _scores(vocabulary)
        in_order.sort(key=lambda token: -scores[usable[token]])
    return [
        (token[:cut], token[cut:])
        for token in in_order
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in usable and token[cut:] in usable
    ]


def _scores(vocabulary: gguf_vocabulary.Vocabulary) -> list[float]:
    normal = [kind == gguf_vocabulary.NORMAL for kind in vocabulary.kinds]
    scores = vocabulary.scores
    if scores is None or len(set(scores[np.array(normal)].tolist())) < 2:
        raise vocabulary.fields.wrong("scores", "missing or all alike, and the file has no merges: they cannot be told")
    return scores.tolist()
