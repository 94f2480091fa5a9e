"""With SmolLM2's real weights, numbers and predictions equal PyTorch's on the same GGUF file."""

import json
import pathlib
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
import transformers  # noqa: E402

from knnprompt_jax import lm, shipped  # noqa: E402
from knnprompt_jax import states as states_lib  # noqa: E402
from knnprompt_jax.prompts import layout  # noqa: E402
from knnprompt_jax.runs import comparison  # noqa: E402
from knnprompt_jax.settings import shared  # noqa: E402
from knnprompt_jax.store import representations  # noqa: E402
from knnprompt_jax.tasks import catalogue, sources, splits  # noqa: E402

TASK = catalogue.get("demo")
ROWS = 24
# Differences of divergences (nats) below which float32 cannot order anchors.
ROUNDING = 1e-4


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> transformers.PreTrainedModel:
    """Return the model as `transformers` reads the file, in float32."""
    torch.set_num_threads(1)  # Other tests run at the same time, and waiting threads spin.
    folder = tmp_path_factory.mktemp("smollm2")
    shutil.copy(shipped.locate("smollm2"), folder / "model.gguf")
    options = {"gguf_file": "model.gguf", "dtype": torch.float32, "local_files_only": True}
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


@pytest.fixture(scope="module")
def ours() -> lm.LanguageModel:
    return lm.LanguageModel.from_pretrained("smollm2")


@pytest.fixture(scope="module")
def train() -> list:
    return sources.load_rows(TASK, "train")


@pytest.fixture(scope="module")
def rows() -> list:
    """Return rows spread over the shipped task's test set."""
    return sources.load_rows(TASK, "dev_subsample")[:: 180 // ROWS][:ROWS]


def log_probabilities(model: transformers.PreTrainedModel, tokens: list[int]) -> np.ndarray:
    """Return log-probabilities [V] after the whole prompt, normalised in float64."""
    with torch.inference_mode():
        logits_V = model(torch.tensor([tokens]), logits_to_keep=1).logits[0, -1].double()
    return logits_V.log_softmax(-1).numpy()


def prompt(ours: lm.LanguageModel, demonstrations: list, query) -> list[int]:
    prefix = "".join(TASK.render(example, example.label) + "\n" for example in demonstrations)
    return ours.tokenize([prefix + TASK.render(query)])[0]


def test_log_probabilities_of_real_prompts(ours, theirs, train, rows):
    """Eight prompts of about 50 to 900 tokens."""
    queries, counts = rows[:8], np.linspace(0, 26, 8).astype(int)
    prompts = [prompt(ours, train[:count], query) for count, query in zip(counts, queries, strict=True)]
    assert min(map(len, prompts)) < 60 and max(map(len, prompts)) > 800
    group = layout.PromptGroup(np.zeros(0, np.int32), tuple(map(np.array, prompts)), np.arange(8))
    got_NV = np.asarray(
        representations.log_probabilities(ours.head, states_lib.read(ours, layout.Prompts((group,), 8)))
    )
    want_NV = np.stack([log_probabilities(theirs, tokens) for tokens in prompts])
    assert np.abs(got_NV - want_NV).max() < 2e-4


def test_predictions_equal_those_of_whole_prompts(ours, theirs, train, rows, tmp_path):
    """Compare the main job with a plain computation: one whole prompt at a time, divergences in float64."""
    split = splits.draw(train, TASK, shots=4, demo_shots=2, seed=1)
    read = lambda query: log_probabilities(theirs, prompt(ours, split.demonstrations, query))  # noqa: E731
    logk_NV, logp_QV = (np.stack([read(example) for example in examples]) for examples in (split.anchors, rows))
    label_ids = [ours.tokenize([f" {word}"])[0][-1] for word in TASK.label_words]
    labels_N = np.array([TASK.class_index(example.label) for example in split.anchors])
    divergence_QN = (np.exp(logp_QV) * logp_QV).sum(-1)[:, None] - np.exp(logp_QV) @ logk_NV.T
    nearest_QN = np.argsort(divergence_QN, -1, kind="stable")
    votes_Q = [np.bincount(labels_N[nearest[:2]], minlength=6).argmax() for nearest in nearest_QN]
    sorted_QN = np.sort(divergence_QN, -1)
    decided_Q = sorted_QN[:, 2] - sorted_QN[:, 1] > ROUNDING
    assert decided_Q.mean() > 0.9 and len(set(votes_Q)) > 2

    files = {"train_file": write(tmp_path / "train.jsonl", train), "eval_file": write(tmp_path / "rows.jsonl", rows)}
    files["output"] = str(tmp_path / "records")
    icl, knn = comparison.run(shared.ComparisonSettings(methods="icl,knn", shots=4, demo_shots=2, seeds=(1,), **files))
    assert [TASK.labels.index(label) for label in icl.predicted] == logp_QV[:, label_ids].argmax(-1).tolist()
    got_Q = np.array([TASK.labels.index(label) for label in knn.predicted])
    assert got_Q[decided_Q].tolist() == np.array(votes_Q)[decided_Q].tolist()


def write(path: pathlib.Path, examples: list) -> str:
    lines = [json.dumps({**example.fields, "label": example.label}) + "\n" for example in examples]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)
