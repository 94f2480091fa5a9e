"""Scores in lm-evaluation-harness agree with those of its Hugging Face backend."""

import json
import pathlib
import random
import sys
import types

import numpy as np
import pytest

lm_eval = pytest.importorskip("lm_eval", reason="the extra harness")
torch = pytest.importorskip("torch", reason="parity is with its Hugging Face backend")
from lm_eval import tasks as lm_eval_tasks  # noqa: E402

from knnprompt_jax import harness  # noqa: E402
from knnprompt_jax.common import errors, progress  # noqa: E402
from knnprompt_jax.models import hub  # noqa: E402
from knnprompt_jax.tasks import catalogue  # noqa: E402

TASK = catalogue.get("demo")
CHOICES = """
task: choice
dataset_path: json
dataset_kwargs: {{data_files: {{train: {0}/train.jsonl, test: {0}/test.jsonl}}}}
fewshot_split: train
fewshot_config: {{sampler: {1}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}\\nkind:"
doc_to_target: label
doc_to_choice: {2}
"""


@pytest.fixture(scope="module")
def ours() -> harness.HarnessModel:
    return harness.HarnessModel("tiny")


@pytest.fixture(scope="module")
def theirs():
    from lm_eval.models import huggingface

    return huggingface.HFLM(str(hub.locate("tiny")), device="cpu", dtype="float32", batch_size=5)


def requests(*texts):
    return [types.SimpleNamespace(args=text) for text in texts]


def write_task(folder: pathlib.Path, sampler: str) -> None:
    for name, split, step in (("train", "train", 7), ("test", "dev_subsample", 9)):
        rows = catalogue.load_rows(TASK, split)[::step]
        lines = [{"text": TASK.retrieval_text(row), "label": TASK.labels.index(row.label)} for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "choice.yaml").write_text(CHOICES.format(folder, sampler, json.dumps(TASK.label_words)))


def evaluate(model, folder: pathlib.Path, **options):
    found = lm_eval_tasks.TaskManager(include_path=str(folder), include_defaults=False)
    result = lm_eval.simple_evaluate(
        model, tasks=["choice"], task_manager=found, bootstrap_iters=0, log_samples=True, **options
    )
    scores = [np.array(sample["resps"], float).ravel() for sample in result["samples"]["choice"]]
    return result["results"]["choice"]["acc,none"], np.concatenate(scores)


@pytest.mark.parametrize(("sampler", "num_fewshot"), [("first_n", 5), ("default", 0)])
def test_the_same_numbers_as_the_hugging_face_backend(tmp_path, ours, theirs, sampler, num_fewshot):
    write_task(tmp_path, sampler)
    got, want = (evaluate(model, tmp_path, num_fewshot=num_fewshot) for model in (ours, theirs))
    np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-4)
    assert got[0] == want[0]


def test_rolling_likelihoods_of_whole_texts(ours, theirs):
    texts = [TASK.retrieval_text(row) for row in catalogue.load_rows(TASK, "train")]
    asked = requests(*(("\n".join(texts[start : start + count]),) for start, count in ((0, 1), (3, 5), (11, 131))))
    got, want = (model.loglikelihood_rolling(asked, disable_tqdm=True) for model in (ours, theirs))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


TEXTS = [
    ("A sentence to go on with: the", " rain"),
    ("A sentence to go on with: the", " sun is out"),
    ("", "Nothing before it."),
    ("blank at its end ", "word"),
    ("word " * 700, "the end of a text that is too long"),
    *((f"shared {'so many words ' * 40}{number % 7}", f" {number}") for number in range(71)),
]


def test_scores_do_not_depend_on_order_or_duplicates(ours, theirs, monkeypatch):
    got = ours.loglikelihood(requests(*TEXTS), disable_tqdm=True)
    want = theirs.loglikelihood(requests(*TEXTS), disable_tqdm=True)
    np.testing.assert_allclose(*([score for score, _ in scores] for scores in (got, want)), atol=1e-4)
    assert [greedy for _, greedy in got] == [greedy for _, greedy in want]
    shuffled = random.Random(3).sample([*range(len(TEXTS)), *range(0, len(TEXTS), 5)], k=len(TEXTS) + 16)
    again = ours.loglikelihood(requests(*(TEXTS[place] for place in shuffled)), disable_tqdm=True)
    assert again == [got[place] for place in shuffled]
    blank, empty = ours.loglikelihood(requests(("\n", " down"), ("", "\n down")), disable_tqdm=True)
    assert blank == empty, "a context without tokens is empty"
    monkeypatch.setattr(progress, "bar", lambda *_, **__: pytest.fail("a bar is shown"))
    few = ours.loglikelihood(requests(*TEXTS[:6]), disable_tqdm=True)
    np.testing.assert_allclose([score for score, _ in few], [score for score, _ in got[:6]], atol=1e-4)


def test_greedy_continuations(ours, theirs):
    context = "The talk was about the"
    with torch.inference_mode():
        best = theirs.model(torch.tensor([ours.tok_encode(context)])).logits[0, -1].argmax()
    words = (ours.tokenizer.decode([int(best)]), " xylophone")
    scores = ours.loglikelihood(requests(*((context, word) for word in words)), True)
    assert [greedy for _, greedy in scores] == [True, False]


@pytest.mark.parametrize("texts", [("The site", ""), ("", ""), ("hello wor", "ld"), ("half a \ud800", "character")])
def test_an_option_without_tokens_is_refused(ours, texts):
    """A score of nothing, 0 nats, would win against every other option."""
    with pytest.raises(errors.UserError, match="no tokens of its own|half a character"):
        ours.loglikelihood(requests(texts), disable_tqdm=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dtpye": "bfloat16"}, "dtpye: no such option; choose from dtype, max_length"),
        ({"mesh_model": "two"}, "mesh_model=two: give a whole number"),
        ({"max_length": 10**6}, "context=1000000: tiny reads at most"),
        ({"max_length": 0.5}, "max_length="),
    ],
)
def test_bad_arguments_are_refused(given, message):
    harness.HarnessModel("tiny", batch_size="auto", max_batch_size=None, device="cuda:0")
    with pytest.raises(errors.UserError, match=message):
        harness.HarnessModel("tiny", **given)


def test_generation_exits_with_one_line(tmp_path, monkeypatch, capsys):
    write_task(tmp_path, "default")
    text = (tmp_path / "choice.yaml").read_text().replace("multiple_choice", "generate_until")
    (tmp_path / "choice.yaml").write_text(text)
    command = ["harness", "--model=knnprompt", "--model_args", "pretrained=tiny", "--tasks", "choice"]
    monkeypatch.setattr(sys, "argv", [*command, "--include_path", str(tmp_path)])
    with pytest.raises(SystemExit) as exit:
        harness.main()
    assert exit.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: knnprompt scores texts")
