"""Tokenizers that are all that tokenizer.json holds give the tokens of `transformers` without it; of all others it is asked."""

import copy
import json
import shutil
import subprocess
import sys

import pytest
import tokenizers
import transformers
from tokenizers import processors

from knnprompt_jax.models import plain_tokenizer, shipped
from knnprompt_jax.models import tokenizers as tokenizers_lib
from knnprompt_jax.store import manifest

TEXTS = ["", " ", "a film, it was", "Ünïcode 東京 👍\r\n\t", "end <|endoftext|> and on", "x" * 3000]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    shutil.copytree(shipped.locate("tiny"), made)
    return made


@pytest.fixture
def whole(folder):
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def with_start(folder):
    """Its texts begin with a token."""
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    token = "<|endoftext|>"
    backend.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, backend.token_to_id(token))]
    )
    backend.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("change", [lambda folder: None, with_start])
@pytest.mark.parametrize(
    "options", [{}, {"add_special_tokens": False}, {"return_attention_mask": False, "verbose": False}]
)
def test_tokens_are_those_of_transformers(folder, change, options):
    change(folder)
    plain, whole = tokenizers_lib.load(folder), transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert isinstance(plain, plain_tokenizer.PlainTokenizer)
    assert plain(TEXTS, **options)["input_ids"] == whole(TEXTS, **options)["input_ids"]
    assert [plain(text, **options)["input_ids"] for text in TEXTS] == whole(TEXTS, **options)["input_ids"]
    assert len(plain) == len(whole)


def test_saved_classifiers_know_it_as_the_same(folder, whole):
    assert manifest.tokenizer_hash(plain_tokenizer.load(folder)) == manifest.tokenizer_hash(whole)


def test_all_else_is_what_transformers_says(folder, whole):
    plain = plain_tokenizer.load(folder)
    assert (plain.eos_token_id, plain.model_max_length) == (whole.eos_token_id, 1024)
    assert plain.batch_decode([[5, 6], [7]]) == whole.batch_decode([[5, 6], [7]])
    cut = {"truncation": True, "max_length": 2}
    assert plain(TEXTS, **cut)["input_ids"] == whole(TEXTS, **cut)["input_ids"]
    assert plain("a", "b")["input_ids"] == whole("a", "b")["input_ids"]
    assert plain([("a", "b")])["input_ids"] == whole([("a", "b")])["input_ids"]
    assert set(plain("a film")) == {"input_ids"}
    again = copy.deepcopy(plain)
    assert again("a film") == plain("a film")
    with pytest.raises(AttributeError, match="of_another_kind"):
        _ = plain.of_another_kind


def described(**values):
    def change(folder):
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def without_post_processor(folder):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"post_processor": None}))


def enabled(name, *arguments, **values):
    def change(folder):
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        getattr(backend, f"enable_{name}")(*arguments, **values)
        backend.save(str(folder / "tokenizer.json"))

    return change


@pytest.mark.parametrize(
    "change",
    [
        described(add_bos_token=True),
        described(tokenizer_class="GPT2Tokenizer"),
        described(unk_token="<unk>"),
        described(pad_token={"content": "<|endoftext|>", "__type": "AddedToken"}),
        lambda folder: (folder / "special_tokens_map.json").write_text('{"pad_token": "<pad>"}'),
        lambda folder: (folder / "tokenizer_config.json").unlink(),
        lambda folder: (folder / "tokenizer_config.json").write_text("[1]"),
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        without_post_processor,
        enabled("truncation", 7),
        enabled("padding", length=11),
    ],
)
def test_where_there_may_be_more_to_it_transformers_is_asked(folder, change):
    change(folder)
    assert plain_tokenizer.load(folder) is None


def test_large_vocabularies_are_left_to_transformers(folder, monkeypatch):
    monkeypatch.setattr(plain_tokenizer, "_MOST_TOKENS", 5119)
    assert plain_tokenizer.load(folder) is None


SLOW = ("transformers", "sklearn", "scipy", "pandas", "torch", "matplotlib", "pyarrow")
SCRIPT = """
import sys
from knnprompt_jax.models import shipped, tokenizers
from knnprompt_jax.prediction import job
tokenizers.load(shipped.locate("tiny"))("a film")
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_labelling_a_file_imports_nothing_slow_that_it_does_not_need():
    done = subprocess.run([sys.executable, "-c", SCRIPT, *SLOW], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
