"""Small tokenizers, and GGUF files with them in the form of llama.cpp's converter."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from knnprompt_jax.models import hub
from knnprompt_jax.models.convert import gguf_model, gguf_tokenizer
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
ADDED = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<think>": USER_DEFINED, "</think>": USER_DEFINED}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A tokenizer and its metadata under `tokenizer.ggml.`."""

    tokenizer: tokenizers.Tokenizer
    values: dict[str, Any]

    def convert(self, folder: pathlib.Path, arch: str = "llama", **changes: Any) -> pathlib.Path:
        """Write a GGUF file with changed metadata, and return the folder with the tokenizer that it is converted to."""
        values = {f"tokenizer.ggml.{key}": value for key, value in (self.values | changes).items()}
        gguf_writer.write_file(folder / "t.gguf", arch, values, {"token_embd.weight": np.zeros((7, 32), np.float32)})
        gguf_tokenizer.convert(gguf_model.read(folder / "t.gguf"), folder)
        return folder


def byte_level(file: pathlib.Path | None = None) -> Trained:
    """Return the tokenizer of a tokenizer.json, by default tiny's, which splits as GPT-2's, with added tokens."""
    tokenizer = tokenizers.Tokenizer.from_file(str(file or hub.locate("tiny") / "tokenizer.json"))
    for token, kind in ADDED.items():
        tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False, special=kind == CONTROL)])
    ids, end = tokenizer.get_vocab(), tokenizer.token_to_id("<|endoftext|>")
    tokens = sorted(ids, key=ids.__getitem__)
    kinds = [CONTROL if token == "<|endoftext|>" else ADDED.get(token, NORMAL) for token in tokens]
    values = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds, "merges": merges_of(tokenizer)}
    return Trained(tokenizer, values | {"bos_token_id": end, "eos_token_id": end})


def sentencepiece(prefix: bool) -> Trained:
    """Train a tokenizer like Llama 2's (`prefix`) or Gemma's: bytes, then merged tokens in order, then characters."""
    trained = tokenizers.Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    texts = [text for text in TEXTS if text.isascii() and "<" not in text]
    texts = [*texts * 3, _PROSE, _PROSE.title(), _PROSE.upper()]
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=250, show_progress=False))
    own = json.loads(trained.to_str())["model"]
    merged = ["".join(merge) for merge in own["merges"]]
    runs = [] if prefix else ["▁" * length for length in range(2, 9)]
    characters = [token for token in own["vocab"] if token not in merged and token not in runs]
    kinds = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL, **dict.fromkeys(runs, USER_DEFINED)}
    kinds |= {f"<0x{byte:02X}>": BYTE for byte in range(256)}
    kinds |= dict.fromkeys([token for token in merged if token not in runs] + characters, NORMAL)
    ids = {token: number for number, token in enumerate(kinds)}
    merges = [tuple(merge) for merge in own["merges"]]
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] * prefix + [normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + [decoders.Strip(" ", 1, 0)] * prefix
    )
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens([tokenizers.AddedToken(run, normalized=True) for run in runs])
    values = {
        "model": "llama",
        "pre": "default",
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tokens": [token.replace("▁", " ") if token in runs else token for token in kinds],
        "token_type": list(kinds.values()),
        "scores": [-1000.0 if kinds[token] == USER_DEFINED else -float(id_) for token, id_ in ids.items()],
        "add_space_prefix": None if prefix else False,
    }
    return Trained(tokenizer, values)


def merges_of(tokenizer: tokenizers.Tokenizer) -> list[str]:
    """Return the merges in the form of GGUF files."""
    return [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
