"""Train small tokenizers and write them into GGUF files in the form of llama.cpp's converter."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from tests.models import gguf_writer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

TEXTS = [
    "",
    " ",
    "   ",
    "a  12",
    "  leading blanks and trailing ones  ",
    "one\ntwo\n\nthree\n\n\n  four\r\n\r\n\tfive\t\t",
    "3 33 333 3333 33333 333333 3.14 1,000 ½ Ⅷ ٣٤",
    "I'm you're WE'VE he'll they'd 'tis rock'n'roll",
    "café cafe\u0301 naïve Å Å ﬁ ß İstanbul",
    "🙂 👩‍👩‍👧 🇩🇪 𝔘𝔫𝔦 \u200b\ufeff",
    "日本語 русский العربية हिन्दी ไทย",
    "HTTPServer_v2.0(foo_bar) != {x: [1, 2]}; // $%^&*~`|\\",
    "<s> </s> <|im_start|>user hi<|im_end|>\n<think>x</think>",
    "text<|im_end|>  <|im_start|>",
    "▁▁ literal ▁ Ġ Ċ <0x0A>",
    "aaaaaaaaaaaaaaaaaaaaaaa bbbb\u00a0\u3000 ab",
    "great . terrible . great movie , terrible film !",
]
_PROSE = "the movie was great and it's what they'd have seen in 1999 or 2024 while 33 of 100 said terrible things " * 3
TRAINING = [*TEXTS * 3, _PROSE, _PROSE.title(), _PROSE.replace(" ", "  "), _PROSE.upper()]
ADDED = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<think>": USER_DEFINED, "</think>": USER_DEFINED}

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
_CAPITALS, _SMALLS = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
_BEFORE, _MARKS = "[^\\r\\n\\p{L}\\p{N}]?", "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"


def _regex(pattern: str) -> list[dict]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, byte_level]


def _cased(endings: str, digits: str) -> str:
    lower = _BEFORE + _CAPITALS + "*" + _SMALLS + "+" + endings
    upper = _BEFORE + _CAPITALS + "+" + _SMALLS + "*" + endings
    return lower + "|" + upper + "|\\p{N}" + digits + _MARKS


_GPT2 = [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]
_DIGITS = [{"type": "Digits", "individual_digits": True}]
_NFC = {"type": "NFC"}
_LLAMA3 = (None, _regex(_ENDINGS + _WORDS), True)
# Normaliser, splits, and whether a word that is a token stays whole, as published tokenizer.json files have them.
PUBLISHED: dict[str, tuple[dict | None, list[dict], bool]] = {
    "gpt-2": (None, _GPT2, False),
    "smollm": (None, _DIGITS + _GPT2, False),
    "llama-bpe": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "dbrx": (None, _regex(_ENDINGS + _WORDS), False),
    "qwen2": (_NFC, _regex(_ENDINGS + _WORDS.replace("{1,3}", "")), False),
    "olmo": (_NFC, _GPT2, False),
    "gpt-4o": (None, _regex(_cased(_ENDINGS + "?", "{1,3}")), False),
    "tekken": (None, _regex(_cased("", "")), True),
}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A tokenizer and its metadata under `tokenizer.ggml.`."""

    tokenizer: tokenizers.Tokenizer
    values: dict[str, Any]

    def write(self, path: pathlib.Path, arch: str = "llama", **changes: Any) -> pathlib.Path:
        values = {f"tokenizer.ggml.{key}": value for key, value in (self.values | changes).items()}
        gguf_writer.write_file(path, arch, values, {"token_embd.weight": np.zeros((7, 32), np.float32)})
        return path


def byte_level(pre: str, vocab_size: int = 400) -> Trained:
    """Train a tokenizer with the chain named `pre`; added tokens come last."""
    normalizer, steps, whole_words = PUBLISHED[pre]
    chain = {"normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    tokenizer = _from(models.BPE(ignore_merges=whole_words), chain | {"decoder": _GPT2[0]})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TRAINING, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    )
    return finish(tokenizer, "gpt2", pre)


def finish(tokenizer: tokenizers.Tokenizer, model: str, pre: str) -> Trained:
    """Add the added tokens and make the metadata."""
    for token, kind in ADDED.items():
        tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False, special=kind == CONTROL)])
    own = json.loads(tokenizer.to_str())["model"]
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    values = {
        **{"model": model, "pre": pre, "tokens": tokens, "token_type": [ADDED.get(token, NORMAL) for token in tokens]},
        "merges": [" ".join(merge) for merge in own["merges"]],
        **{"bos_token_id": vocabulary["<|im_start|>"], "eos_token_id": vocabulary["<|im_end|>"]},
    }
    return Trained(tokenizer, values)


def sentencepiece(prefix: bool) -> Trained:
    """Train a tokenizer like Llama 2's (`prefix`) or Gemma's: bytes, then merged tokens in order, then characters."""
    trained = tokenizers.Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    simple = [text for text in TRAINING if text.isascii() and "<" not in text]
    trained.train_from_iterator(simple, trainers.BpeTrainer(vocab_size=250, show_progress=False))
    own = json.loads(trained.to_str())["model"]
    merged = ["".join(merge) for merge in own["merges"]]
    runs = [] if prefix else ["▁" * length for length in range(2, 9)]
    special = ["<unk>", "<s>", "</s>"]
    characters = [token for token in own["vocab"] if token not in merged and token not in runs]
    merged = [token for token in merged if token not in runs]
    pieces = [*special, *runs, *(f"<0x{byte:02X}>" for byte in range(256)), *merged, *characters]
    numbers = {token: number for number, token in enumerate(pieces)}
    merges = [tuple(merge) for merge in own["merges"]]
    tokenizer = _from(
        models.BPE(numbers, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True), _sentencepiece(prefix)
    )
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in special])
    tokenizer.add_tokens([tokenizers.AddedToken(run, normalized=True) for run in runs])
    kinds = dict.fromkeys(runs, USER_DEFINED) | {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    kinds |= {f"<0x{byte:02X}>": BYTE for byte in range(256)}
    values = {
        **{
            "model": "llama",
            "pre": "default",
            "merges": None,
            "unknown_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        "tokens": [token.replace("▁", " ") if token in runs else token for token in pieces],
        "token_type": [kinds.get(token, NORMAL) for token in pieces],
        "scores": [-1000.0 if kinds.get(token) == USER_DEFINED else -float(n) for token, n in numbers.items()],
        "add_space_prefix": None if prefix else False,
    }
    return Trained(tokenizer, values)


def merges_of(trained: Trained) -> list[str]:
    """Return the merges in the form of older files."""
    return [" ".join(merge) for merge in json.loads(trained.tokenizer.to_str())["model"]["merges"]]


def _sentencepiece(prefix: bool) -> dict:
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    steps = [{"type": "Prepend", "prepend": "▁"}, replace] if prefix else [replace]
    undo = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    undo += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "decoder": {"type": "Sequence", "decoders": undo},
    }


def _from(model: models.Model, chain: dict) -> tokenizers.Tokenizer:
    whole = json.loads(tokenizers.Tokenizer(model).to_str())
    return tokenizers.Tokenizer.from_str(json.dumps(whole | chain))


def merge_by_score(text: str, score: dict[str, float]) -> list[str]:
    """Apply SentencePiece's rule: merge the neighbours with the best score, the leftmost of several."""
    parts = list(text)
    while True:
        places = [place for place in range(len(parts) - 1) if parts[place] + parts[place + 1] in score]
        if not places:
            return parts
        best = max(places, key=lambda place: score[parts[place] + parts[place + 1]])
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
