"""Convert the tokenizer of a GGUF file to tokenizer.json.

`transformers` reads such tokenizers too, but splits blanks before digits in other ways than SmolLM2's published
tokenizer.

`tokenizer.ggml.model` is "gpt2" (byte-level BPE) or "llama" (SentencePiece's BPE with byte fallback: Llama 2, Mistral,
Gemma 3). In byte-level BPE `tokenizer.ggml.pre` names the rule that splits a text before merges, one of `splits`. In
SentencePiece's a text is one word in which "▁" replaces each blank.
"""

import dataclasses
import json
import pathlib

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from knnprompt_jax.models import split_rules
from knnprompt_jax.models.convert import gguf_model

# Kinds of tokens, numbered as in SentencePiece.
_NORMAL = 1
_CONTROL = 3
_USER_DEFINED = 4
_UNUSED = 5
_TEMPLATE = "tokenizer.chat_template"
_ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}

_BLANK = "▁"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@dataclasses.dataclass(frozen=True)
class _Vocabulary:
    """The tokens and their kinds by token id. `merges` may be missing in SentencePiece's.

    `has_prefix`: a blank is put before each text and each piece of text after an added token.
    """

    fields: gguf_model.Fields
    tokens: list[str]
    kinds: list[int]
    merges: list[tuple[str, str]] | None
    has_prefix: bool

    def ids(self) -> dict[str, int]:
        """Return the id of each token, without the rows that only pad the embeddings."""
        return {
            token: id_
            for id_, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if not (kind == _UNUSED and token == f"[PAD{id_}]")
        }

    def spell(self, token: str) -> str:
        """Return the token with "▁" for blanks, which llama.cpp's converter undoes in user-defined tokens (Gemma's)."""
        return token if self.has_prefix else token.replace(" ", _BLANK)


def convert(header: gguf_model.Header, folder: pathlib.Path) -> None:
    """Write tokenizer.json, with the token ids of the published tokenizer, and tokenizer_config.json.

    Texts begin with BOS if the file says so, by default as in llama.cpp. EOS is never added.

    Raises:
        UserError: the vocabulary or the tokenizer is not supported.
    """
    fields = gguf_model.Fields(header, "tokenizer.ggml.")
    is_byte_level = fields.choice("model", None, ("gpt2", "llama")) == "gpt2"
    vocabulary = _read_vocabulary(fields, is_byte_level)
    roles = {role: fields.value(key) for role, key in _ROLES.items() if fields.value(key) is not None}
    named = {f"{role}_token": vocabulary.tokens[id_] for role, id_ in roles.items()}
    if is_byte_level:
        tokenizer, has_bos = _byte_level(vocabulary)
    else:
        tokenizer = _sentencepiece(vocabulary, named.get("unk_token"))
        has_bos = True
    tokenizer.add_tokens(_added_tokens(vocabulary, is_byte_level, set(roles.values())))
    if fields.switch("add_bos_token", has_bos):
        start = named["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            f"{start}:0 $A:0", f"{start}:0 $A:0 {start}:1 $B:1", [(start, roles["bos"])]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    template = {"chat_template": header.metadata[_TEMPLATE]} if _TEMPLATE in header.metadata else {}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named, **template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _read_vocabulary(fields: gguf_model.Fields, is_byte_level: bool) -> _Vocabulary:
    tokens = fields.value("tokens")
    kinds = fields.value("token_type", [_NORMAL] * len(tokens))
    if len(kinds) != len(tokens) or len(set(tokens)) != len(tokens):
        raise fields.wrong("tokens", f"{len(set(tokens))} different tokens of {len(tokens)}, and {len(kinds)} kinds")
    merges = fields.value("merges")
    pairs = None if merges is None else [_split_merge(merge) for merge in merges]
    return _Vocabulary(fields, tokens, kinds, pairs, fields.switch("add_space_prefix", not is_byte_level))


def _split_merge(merge: str) -> tuple[str, str]:
    """Split a merge at the blank between its parts; the first part may itself begin with a blank."""
    left, right = merge[1:].split(" ", 1)
    return merge[0] + left, right


def _byte_level(vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """Return the tokenizer without added tokens, and whether texts begin with BOS by default.

    Raises:
        UserError: no merges, an unknown split, or a blank before each text, which no published model of this kind has.
    """
    split = split_rules.SPLITS[vocabulary.fields.choice("pre", None, split_rules.SPLITS)]
    if vocabulary.merges is None:
        raise vocabulary.fields.wrong("merges", "not in the file")
    if vocabulary.has_prefix:
        raise vocabulary.fields.wrong("add_space_prefix", "it is not supported for byte-level BPE")
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


def _sentencepiece(vocabulary: _Vocabulary, unknown: str | None) -> tokenizers.Tokenizer:
    """Return the tokenizer without added tokens.

    Raises:
        UserError: the file has neither merges nor usable scores, or lacks tokens for bytes.
    """
    ids = {vocabulary.spell(token): id_ for token, id_ in vocabulary.ids().items()}
    missing = [byte for byte in _BYTES if byte not in ids]
    if missing:
        raise vocabulary.fields.wrong("tokens", f"{len(missing)} of 256 bytes are no tokens, such as {missing[0]}")
    merges = vocabulary.merges or _merges_by_score(vocabulary)
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _BLANK)]
    undo: list[decoders.Decoder] = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.has_prefix:
        steps.insert(0, normalizers.Prepend(_BLANK))
        undo.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(undo)
    return tokenizer


def _merges_by_score(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    """Return each way to make a token of two others, the best tokens first.

    The best token has the highest score. In Gemma's files it has the lowest id: their scores are not in the order of
    merges.
    """
    usable = {
        vocabulary.spell(token): id_
        for id_, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if kind in (_NORMAL, _USER_DEFINED)
    }
    in_order = sorted(usable, key=usable.__getitem__)
    if vocabulary.fields.header.metadata["general.architecture"] != "gemma3":
        scores = vocabulary.fields.value("scores", [])
        normal = {score for score, kind in zip(scores, vocabulary.kinds, strict=False) if kind == _NORMAL}
        if len(scores) != len(vocabulary.tokens) or len(normal) < 2:
            raise vocabulary.fields.wrong("scores", "missing or all equal, and the file has no merges")
        in_order.sort(key=lambda token: -scores[usable[token]])
    return [
        (token[:cut], token[cut:])
        for token in in_order
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in usable and token[cut:] in usable
    ]


def _added_tokens(vocabulary: _Vocabulary, is_byte_level: bool, special_ids: set[int]) -> list[tokenizers.AddedToken]:
    """Return the tokens that are never split; control tokens, BOS and the like are special."""
    added = []
    for id_, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True)):
        is_special = kind == _CONTROL or id_ in special_ids
        if not is_special and kind != _USER_DEFINED:
            continue
        # Gemma looks for runs of blanks after blanks became "▁".
        is_run = not is_byte_level and not is_special and not vocabulary.has_prefix
        spelled = vocabulary.spell(token) if is_run else token
        added.append(tokenizers.AddedToken(spelled, special=is_special, normalized=is_run))
    return added
