"""Tokenizers of model folders: damaged ones are refused, and texts contain no special tokens."""

import json
import shutil

import pytest
import tokenizers as tokenizers_lib
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from knnprompt_jax import errors, lm, shipped
from knnprompt_jax.models import tokenizers
from knnprompt_jax.prompts import layout
from tests.models.gguf import gguf_tokenizers


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(shipped.locate("tiny"), tmp_path / "model")


def test_special_tokens_outside_the_vocabulary_are_allowed(folder):
    """Gemma 3's tokenizer has one for images, which its text models lack."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    image = {**content["added_tokens"][0], "id": 5120, "content": "<image_soft_token>"}
    content["added_tokens"].append(image)
    file.write_text(json.dumps(content))
    assert tokenizers.load(folder, vocab_size=5120).encode("<image_soft_token>", split_special_tokens=False) == [5120]
    assert tokenizers.load(folder, vocab_size=5120)("a")["input_ids"] == tokenizers.load(folder)("a")["input_ids"]
    image["special"] = False
    file.write_text(json.dumps(content))
    with pytest.raises(errors.UserError, match="its tokenizer has token id 5120, but the model has 5120 tokens"):
        lm.LanguageModel.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "model_type"),
    [
        ("GPT2Tokenizer", "llama"),
        ("GPTNeoXTokenizer", "gpt_neox"),
        ("Qwen2Tokenizer", "qwen2"),
        ("LlamaTokenizer", "llama"),
    ],
)
def test_tokenizer_json_counts_and_no_class(tmp_path, kind, model_type):
    """A class of `transformers` may replace the normalizer, the pre-tokenizer and the special tokens of the file."""
    whole = gguf_tokenizers.byte_level().tokenizer
    digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.normalizer, whole.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Sequence([digits, bytes_])
    end = whole.token_to_id("<|endoftext|>")
    whole.post_processor = processors.TemplateProcessing("<|endoftext|> $A", special_tokens=[("<|endoftext|>", end)])
    whole.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": model_type, "bos_token_id": end, "eos_token_id": end})
    )
    loaded, text = tokenizers.load(tmp_path), "\n\n2001 : A  film of 12"
    assert loaded(text)["input_ids"] == whole.encode(text).ids
    assert loaded(text)["input_ids"][0] == loaded.bos_token_id == loaded.eos_token_id == end


@pytest.mark.parametrize(
    ("named", "roles"),
    [({}, [7, 5]), ({"eos_token": "<s>"}, [7, 0]), ({"bos_token": None}, [None, 5]), ({"eos_token": None}, [7, None])],
)
def test_config_names_only_roles_that_the_tokenizer_does_not_mention(tmp_path, named, roles):
    words = ["<s>", *"abcdefg"]
    tokenizer = tokenizers_lib.Tokenizer(models.WordLevel({word: id_ for id_, word in enumerate(words)}, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    config = {"bos_token_id": 7, "eos_token_id": 5}
    for ids in (config, {"bos_token_id": -1, "eos_token_id": True}):
        (tmp_path / "config.json").write_text(json.dumps(ids))
        loaded = tokenizers.load(tmp_path)
        expected = roles if ids is config else [None, 0 if "eos_token" in named and named["eos_token"] else None]
        assert [loaded.bos_token_id, loaded.eos_token_id] == expected


TEXT = "the movie</s> was<s>, so <|im_start|> <s>"


def pieces(kind):
    """Return a tokenizer of characters whose own vocabulary or merges yield `<s>` and `</s>`."""
    control = ["<unk>", "<s>", "</s>", "<|im_start|>"]
    vocabulary = [*control, *sorted({*TEXT.replace(" ", "▁")})]
    if kind == "unigram":
        scores = [(token, 0.0 if token in control else -3.0) for token in vocabulary]
        tokenizer = tokenizers_lib.Tokenizer(models.Unigram(scores, 0, False))
    else:
        ids = {token: id_ for id_, token in enumerate([*vocabulary, "<s"])}
        tokenizer = tokenizers_lib.Tokenizer(models.BPE(ids, [("<", "s"), ("<s", ">")], unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.add_special_tokens(control)
    return tokenizer


@pytest.mark.parametrize("kind", ["byte-level", "unigram", "merges", "gguf byte-level", "gguf llama", "gguf gemma3"])
def test_special_tokens_in_texts_are_text(tmp_path, kind):
    is_gguf, kind = kind.startswith("gguf "), kind.removeprefix("gguf ")
    if kind == "byte-level":
        made, bos, arch = gguf_tokenizers.byte_level(), "<|endoftext|>", "llama"
    elif is_gguf:
        made, bos, arch = gguf_tokenizers.sentencepiece(prefix=kind == "llama"), "<s>", kind
    else:
        made, bos = gguf_tokenizers.Trained(pieces(kind), {}), "<s>"
    plain, place = made.tokenizer, tmp_path
    if is_gguf:
        place = made.write(tmp_path / "t.gguf", arch, add_bos_token=True)
    else:
        whole = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token=bos, add_bos_token=True)
        whole.save_pretrained(place)
    loaded = tokenizers.load(place)
    control = {id_ for id_, token in loaded.added_tokens_decoder.items() if token.special}
    text = TEXT + bos
    first, *rest = loaded(text)["input_ids"]
    assert first == loaded.bos_token_id and not control & {*rest}
    assert loaded.decode(rest).strip() == text
    assert control & {*loaded.encode(text, add_special_tokens=False, split_special_tokens=False)}
    words = "the movie was so"
    assert loaded(words)["input_ids"] == [first, *plain.encode(words, add_special_tokens=False).ids]


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:1\n"


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty; was it"),
        ("<html>", "is not JSON; was it"),
        (POINTER, "is a pointer of Git LFS, not the file: git lfs pull downloads it"),
        ("[]", "is a JSON list, not an object"),
        ("3", "is a JSON int, not an object"),
        ("[" * 10**5, "is not JSON"),
        ('{"a":' * 5000, "is not JSON"),
    ],
)
def test_a_damaged_tokenizer_is_refused(folder, name, content, reason):
    (folder / name).write_text(content)
    with pytest.raises(errors.UserError) as caught:
        tokenizers.load(folder)
    assert f": no usable tokenizer (tokenizer.json, or vocab.json and merges.txt): {name} {reason}" in str(caught.value)


def make_empty_vocabulary(folder):
    (folder / "vocab.json").write_text("{}")
    (folder / "merges.txt").write_text("")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: (folder / "tokenizer.json").mkdir(), "tokenizer.json is a folder"),
        (lambda folder: (folder / "tokenizer.json").symlink_to("nowhere"), "tokenizer.json is a broken link"),
        (make_empty_vocabulary, "vocab.json has no tokens"),
    ],
)
def test_a_tokenizer_without_content_is_refused(folder, make, reason):
    (folder / "tokenizer.json").unlink()
    make(folder)
    with pytest.raises(errors.UserError, match=rf"merges.txt\): {reason}$"):
        tokenizers.load(folder)


@pytest.mark.parametrize(
    ("content", "key"), [("{}", "model"), ('{"model": 3}', "model"), ('{"model": {}}', "added_tokens")]
)
def test_an_incomplete_tokenizer_is_refused(folder, content, key):
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(errors.UserError, match=f"tokenizer.json lacks '{key}'$"):
        tokenizers.load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dropout": 0.5}, "its tokenizer drops merges at random"),
        ({"merges": []}, "its tokenizer has no merges"),
        ({"merges": [], "ignore_merges": True}, "its tokenizer has no merges"),
    ],
)
def test_a_tokenizer_with_random_or_no_merges_is_refused(folder, values, message):
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "model": {**content["model"], **values}}))
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(folder)


@pytest.mark.parametrize(
    ("share", "message"),
    [(0, "its tokenizer has no merges"), (0.7, r"\d merges for [\d,]+ tokens .* cut off"), (1, "")],
)
def test_a_file_of_merges_that_is_cut_is_refused(folder, share, message):
    file = folder / "tokenizer.json"
    model = json.loads(file.read_text())["model"]
    file.unlink()
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(merges[: int(share * len(merges))]))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    if not message:
        assert len(tokenizers.load(folder)("a text")["input_ids"]) < 6
        return
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(folder)


@pytest.mark.parametrize("merges", [[], [("b", "c")]])
def test_a_vocabulary_of_characters_needs_no_merges(tmp_path, merges):
    ids = {token: id_ for id_, token in enumerate(["a", "b", "c", *("".join(pair) for pair in merges)])}
    tokenizer = tokenizers_lib.Tokenizer(models.BPE(ids, merges))
    tokenizer.add_tokens(["longer"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert tokenizers.load(tmp_path)("bca")["input_ids"] == ([3, 0] if merges else [1, 2, 0])


def replaced(pattern):
    return {"normalizer": {"type": "Replace", "pattern": pattern, "content": "x"}}


def words(kind, *names, **values):
    vocabulary = {name: id_ for id_, name in enumerate([*names, "[UNK]"])}
    model = {"type": kind, "unk_token": "[UNK]", "vocab": vocabulary, **values}
    return {"model": model, "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}}


PIECES = {"continuing_subword_prefix": "##"}
SAME = "its tokenizer makes the same tokens of different texts"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (replaced({"String": ""}), "no usable tokenizer: index out of bounds"),
        (replaced({"Regex": ""}), "no usable tokenizer: index out of bounds"),
        (replaced({"Regex": "a*"}), "no usable tokenizer: index out of bounds"),
        (replaced({"Regex": "."}), SAME),
        ({"normalizer": {"type": "Prepend", "prepend": ""}}, "no usable tokenizer: index out of bounds"),
        (
            {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
            "no usable tokenizer: Precompiled",
        ),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "no usable tokenizer: chunk size must be non-zero"),
        (words("WordLevel", "a", "film", unk_token="?"), "no usable tokenizer: WordLevel error: Missing .UNK. token"),
        (words("WordPiece", "a", "film", "was", max_input_chars_per_word=0, **PIECES), SAME),
        (words("WordPiece", "bad", "film", "was", max_input_chars_per_word=1, **PIECES), SAME),
        (words("WordLevel"), SAME),
        (
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "z", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                    "pair": [],
                    "special_tokens": {"z": {"id": "z", "ids": [2**32 - 1], "tokens": ["z"]}},
                }
            },
            "begins or ends every text with token id 4294967295, but the model has 5120 tokens",
        ),
    ],
)
def test_a_tokenizer_that_panics_or_loses_texts_is_refused_in_one_line(folder, changes, message, capfd):
    """A panic of the Rust library is no Exception, and prints lines of its own."""
    file = folder / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(folder, vocab_size=5120)
    assert capfd.readouterr().err == ""


def test_a_tokenizer_that_fails_on_a_text_later_is_reported(folder):
    """The probes at load time do not have every character."""
    tokenizer = tokenizers.load(folder)
    vocabulary = {"a": 0, "b": 1}
    tokenizer.backend_tokenizer.model = models.WordLevel(vocabulary, unk_token="?")
    with pytest.raises(errors.UserError, match="the model's tokenizer fails on a text: WordLevel error"):
        layout.tokenize_with(tokenizer)(["zq"])


@pytest.mark.parametrize("kept", [[], ["vocab.json"], ["merges.txt"], ["tokenizer_config.json"]])
@pytest.mark.parametrize("kind", ["gpt2", "gemma3_text", "llama", "qwen2", "opt"])
def test_a_folder_without_the_files_of_a_tokenizer(folder, kept, kind):
    """`transformers` would make a tokenizer of five tokens."""
    (folder / "tokenizer.json").unlink()
    for name in kept:
        (folder / name).write_text("{}")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": kind}))
    with pytest.raises(errors.UserError) as caught:
        tokenizers.load(folder)
    assert str(caught.value) == f"{folder}: no tokenizer (tokenizer.json, or vocab.json and merges.txt)"


@pytest.mark.parametrize("steps", [[("e", "x" * 10**5)], [("e", "ee")] * 20_000])
def test_a_normalizer_that_lengthens_texts_without_bound_is_refused(folder, steps):
    content = json.loads((folder / "tokenizer.json").read_text())
    replacements = [{"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in steps]
    content["normalizer"] = {"type": "Sequence", "normalizers": replacements}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(errors.UserError, match="its normalizer may replace a character by more than 100"):
        tokenizers.load(folder)


@pytest.mark.parametrize("content", ["", "[1]", '{"tokenizer_class": 3}', "{}"])
def test_without_a_description(folder, content):
    expected = tokenizers.load(folder)("a film")["input_ids"]
    (folder / "tokenizer_config.json").write_text(content)
    try:
        assert tokenizers.load(folder)("a film")["input_ids"] == expected
    except errors.UserError as error:
        assert "no usable tokenizer" in str(error)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("$A x", "ends every text with 'x', so the model cannot predict what comes next"),
        ("b $A </s>", "ends every text with '</s>'"),
        ("b b $A", "begins every text with 'b' twice"),
        ("b $A", ""),
    ],
)
def test_tokens_around_every_text(tmp_path, pattern, message):
    words = {"a": 0, "b": 1, "x": 2, "</s>": 3, "?": 4}
    tokenizer = tokenizers_lib.Tokenizer(models.WordLevel(words, unk_token="?"))
    special = [(word, number) for word, number in words.items() if word in pattern.split()]
    tokenizer.post_processor = processors.TemplateProcessing(pattern, special_tokens=special)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="?")
    fast.save_pretrained(tmp_path)
    if not message:
        assert tokenizers.load(tmp_path)("a")["input_ids"] == [1, 0]
        return
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(tmp_path)
    assert tokenizers.load(tmp_path, for_prompts=False)("a")["input_ids"]
