"""The published procedure, step by step in PyTorch, and our main job predict the same label for every row.

The upper half knows nothing of the package: it follows the paper and its released code with `json`, `random`, the GPT-2
tokenizer and a small GPT-2 of `transformers`. One prompt at a time, no shared prefix, float32 probabilities, a mean
over the vocabulary. The lower half runs the package on the same rows and the same saved weights.
"""

import json

import pytest

torch = pytest.importorskip("torch", reason="the published procedure runs in PyTorch")
transformers = pytest.importorskip("transformers")

from knnprompt_jax.cli import paper_settings as grids  # noqa: E402
from knnprompt_jax.models import hub  # noqa: E402
from knnprompt_jax.study import comparison  # noqa: E402
from knnprompt_jax.tasks import catalogue  # noqa: E402
from tests import processes  # noqa: E402
from tests.models import torch_models  # noqa: E402
from tests.tasks.test_splits import published_sample  # noqa: E402

SHOTS, EVALUATION_ROWS, SEEDS = 6, 40, (1, 2)
CONTEXT = {"demo": 272, "trec": 256}  # Some prompts are longer, and some are not.
DEMO_SHOTS = {"demo": 1, "trec": 2}
TEMPLATES = {"demo": "Text: {sentence}\nKind:", "trec": "Question: {sentence}\nType:"}
WORDS = {
    "demo": ["question", "review", "story", "speech", "record", "talk"],
    "trec": ["description", "entity", "expression", "human", "location", "number"],
}
MARGIN = 3e-4  # Nats between the k-th neighbour and the next: enough for float32 to decide a row alike.


class PublishedProcedure:
    """kNN Prompting as released, and in-context learning, for one task and seed."""

    def __init__(self, model, tokenizer, task, train, seed):
        self.model, self.tokenizer, self.task = model, tokenizer, task
        demonstrations = published_sample(train, DEMO_SHOTS[task], seed)
        anchors = published_sample(train, SHOTS - DEMO_SHOTS[task], seed, exclude=demonstrations)
        self.truncated = 0
        self.demonstrations = "".join(
            f"{self.query(row)} {WORDS[task][int(row['label'])]}\n" + "\n" for row in demonstrations
        )
        self.label_tokens = [tokenizer.encode(f" {word}")[-1] for word in WORDS[task]]
        self.anchors_NV = torch.stack([self.next_token(row) for row in anchors])
        self.labels_N = torch.tensor([int(row["label"]) for row in anchors])

    def query(self, row):
        return TEMPLATES[self.task].format(sentence=row["sentence"])

    def next_token(self, row):
        """Return the distribution of the token after the prompt.

        If the prompt is too long, the model gets only its last tokens.
        """
        tokens = self.tokenizer.encode(self.demonstrations + self.query(row))
        self.truncated += len(tokens) > CONTEXT[self.task]
        with torch.no_grad():
            logits = self.model(torch.tensor([tokens[-CONTEXT[self.task] :]]), logits_to_keep=1).logits
        return torch.softmax(logits[0, -1], dim=-1)

    def predict(self, row):
        """Return the label of each method, and the gap in nats between the k-th and the next neighbour.

        The gap is the smaller one of the two directions of KL.
        """
        p_V, k = self.next_token(row), min(3, SHOTS - DEMO_SHOTS[self.task])
        ratio_NV, margins = self.anchors_NV.log() - p_V.log(), []
        labels = {"icl": str(int(p_V[self.label_tokens].argmax()))}
        for name, terms_NV in {"knn": -p_V * ratio_NV, "knn_reverse_kl": self.anchors_NV * ratio_NV}.items():
            distances_N = terms_NV.mean(-1)
            nearest_k = distances_N.topk(k, largest=False).indices
            labels[name] = str(int(self.labels_N[nearest_k].bincount(minlength=len(WORDS[self.task])).argmax()))
            ascending_N = distances_N.sort().values * len(p_V)
            margins.append(float(ascending_N[k] - ascending_N[k - 1]))
        return labels, min(margins)


@pytest.fixture(params=sorted(TEMPLATES))
def task(request):
    """The demo's rows and tokenizer come with the project; TREC's rows and GPT-2's tokenizer are beside it."""
    return request.param


@pytest.fixture
def tokenizer(task, request):
    folder = hub.locate("tiny") if task == "demo" else request.getfixturevalue("shared") / "tokenizers" / "gpt2"
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def model(task, tokenizer):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # More would wait for each other on so small a model.
    sizes = {"n_embd": 36, "n_layer": 2, "n_head": 3, "n_positions": CONTEXT[task], "vocab_size": len(tokenizer)}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = torch_models.build(config, 3)
    yield model
    torch.set_num_threads(threads)


@pytest.fixture
def folder(model, tokenizer, tmp_path):
    """The model as `transformers` saves it."""
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def data(task, request, tmp_path):
    """The published train rows and the first evaluation rows."""
    rows = catalogue.demo_folder() if task == "demo" else request.getfixturevalue("shared") / "data" / task
    (tmp_path / "data" / task).mkdir(parents=True)
    for name, count in (("train.jsonl", None), ("dev_subsample.jsonl", EVALUATION_ROWS)):
        lines = (rows / name).read_text(encoding="utf-8").splitlines(keepends=True)[:count]
        (tmp_path / "data" / task / name).write_text("".join(lines), encoding="utf-8")
    return tmp_path / "data"


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_prediction_is_the_published_one(task, model, tokenizer, folder, data, tmp_path):
    options = {"task": task, "shots": SHOTS, "demo_shots": DEMO_SHOTS[task], "seeds": SEEDS}
    options["methods"] = "icl,knn,knn_reverse_kl"
    records = comparison.run(
        grids.ComparisonSettings(model=str(folder), data_dir=str(data), output=str(tmp_path / "out"), **options)
    )
    ours = {(record.method, record.seed): record for record in records}
    train, evaluation = (read(data / task / f"{split}.jsonl") for split in ("train", "dev_subsample"))
    truncated = []
    for seed in SEEDS:
        published = PublishedProcedure(model, tokenizer, task, train, seed)
        labels, margins = zip(*map(published.predict, evaluation), strict=True)
        decided = [row for row, margin in enumerate(margins) if margin > MARGIN]
        assert len(decided) >= EVALUATION_ROWS - 1, "rows are too close to call: take other weights"
        for name in ("icl", "knn", "knn_reverse_kl"):
            assert len({each[name] for each in labels}) > 1, "predictions must vary for this to test anything"
            assert [ours[name, seed].predicted[row] for row in decided] == [labels[row][name] for row in decided]
        assert ours["knn_reverse_kl", seed].truncated_prompts == published.truncated
        truncated.append(published.truncated)
    assert 0 < sum(truncated) < sum(record.prompts for record in records if record.method == "knn_reverse_kl")


def test_optimized_programs_predict_the_same(monkeypatch):
    """Users run optimized programs; all other tests compile without optimization, which takes less time."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    out, _ = processes.run("-m", "pytest", "-n0", "-p", "no:cacheprovider", __file__, "-k", "published_one and demo")
    assert "1 passed" in out
