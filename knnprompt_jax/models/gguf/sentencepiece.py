"""SentencePiece's BPE with byte fallback from a GGUF file (`tokenizer.ggml.model` "llama"): Llama 2, Mistral, Phi-3, Gemma.

The text is one word in which "▁" replaces each blank.
"""

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers

from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

BLANK = "▁"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def build(vocabulary: gguf_vocabulary.Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
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
