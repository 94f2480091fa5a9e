"""Fine-tuning: training against `transformers` and torch.optim, resume, precision, order, devices; and as a method."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from flax import nnx

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import fine_tuning, method
from knnprompt_jax.models import registry
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
import transformers  # noqa: E402

RNG = np.random.default_rng(0)
LENGTHS = (23, 7, 1, 30, 12, 5, 9)
TEXTS = fine_tuning.Texts(
    tuple(RNG.integers(1, 53, length).tolist() for length in LENGTHS),
    tuple((np.arange(length) > 3).astype(int).tolist() for length in LENGTHS),
    max_length=37,
)
Y = np.array([0, 1, 2, 0, 1, 2, 0])
CONFIG = methods.FineTuningOptions(
    steps=5, batch=3, learning_rate=3e-3, weight_decay=0.5, dropout=0.0, checkpoint_every=2
)


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory) -> Callable:
    """`classifiers("bert")`, `("gpt2")` or `("phi")`: PyTorch's model for sequence classification and a fresh copy of ours, 3 classes."""
    common = {"vocab_size": 53, "num_labels": 3, "initializer_range": 0.3, "pad_token_id": 0}
    bert = {"hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2, "intermediate_size": 41}
    gpt2 = {"n_embd": 35, "n_head": 5, "n_layer": 2, "n_inner": 41, "n_positions": 37}
    configs = {
        "bert": transformers.BertConfig(**common, **bert, max_position_embeddings=37),
        "gpt2": transformers.GPT2Config(**common, **gpt2),
        "phi": transformers.PhiConfig(**common, **bert | {"hidden_size": 40}, max_position_embeddings=37),
    }
    places = {name: tmp_path_factory.mktemp(name) for name in configs}

    def make(name: str) -> tuple:
        torch.manual_seed(7)
        theirs = transformers.AutoModelForSequenceClassification.from_config(configs[name], attn_implementation="eager")
        saved = theirs.eval().base_model
        if name == "phi":  # Its files have a head with a bias.
            saved = transformers.AutoModelForCausalLM.from_config(configs[name])
            saved.model.load_state_dict(theirs.base_model.state_dict())
        saved.save_pretrained(places[name])
        config, folder = registry.describe(str(places[name]), families=(name,))
        # A copy: the trainer gives the weights' memory back.
        backbone = jax.tree.map(jnp.copy, checkpoints.load(folder, config, jnp.float32))
        ours = fine_tuning.SequenceClassifier(backbone, 3, nnx.Rngs(0))
        head = theirs.classifier if name == "bert" else theirs.score
        ours.head_kernel[...] = jnp.asarray(head.weight.detach().numpy().T)
        return theirs, ours

    return make


def torch_logits(model, rows):
    """Logits of rows that are padded with the model's padding token, 0, which no text holds."""
    width = max(len(TEXTS.tokens[row]) for row in rows)
    padded = {
        name: torch.tensor([[*column[row], *[0] * (width - len(column[row]))] for row in rows])
        for name, column in (("input_ids", TEXTS.tokens), ("token_type_ids", TEXTS.types))
    }
    if model.config.model_type != "bert":
        del padded["token_type_ids"]
    return model(**padded, attention_mask=(padded["input_ids"] != 0).long()).logits


def probabilities(model):
    with torch.no_grad():
        return torch_logits(model, range(7)).softmax(-1).numpy()


@pytest.mark.parametrize("name", ["bert", "gpt2", "phi"])
def test_training_follows_torch(classifiers, name):
    """The same probabilities, losses and model at the end: AdamW, what decays, clipping, linear decay, order of rows."""
    theirs, ours = classifiers(name)
    tuner, want_NC = fine_tuning.Trainer(ours, CONFIG, fine_tuning.make_mesh(3)), probabilities(theirs)
    np.testing.assert_allclose(tuner.predict_proba(TEXTS), want_NC, atol=1e-4)
    assert np.ptp(want_NC, axis=0).max() > 0.1
    kept = ("bias", "LayerNorm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight", "layernorm.weight")
    groups = {True: [], False: []}
    for key, weight in theirs.named_parameters():
        groups[key.endswith(kept)].append(weight)
    optimizer = torch.optim.AdamW(
        [{"params": groups[False], "weight_decay": 0.5}, {"params": groups[True], "weight_decay": 0.0}],
        lr=3e-3,
        eps=1e-8,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / CONFIG.steps)
    want = []
    for step in range(CONFIG.steps):
        rows = fine_tuning.batch_rows(7, 3, step, 0)
        loss = torch.nn.functional.cross_entropy(torch_logits(theirs, rows), torch.tensor(Y[rows]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        want.append(loss.item())
    np.testing.assert_allclose(tuner.train(TEXTS, Y), want, rtol=2e-3)
    np.testing.assert_allclose(tuner.predict_proba(TEXTS), probabilities(theirs), atol=5e-3)


def test_epochs():
    """Every row once an epoch, each epoch in its own order, and the same for a seed."""
    stream = np.concatenate([fine_tuning.batch_rows(7, 3, step, 5) for step in range(14)]).reshape(6, 7)
    assert (np.sort(stream) == np.arange(7)).all()
    assert len({tuple(epoch) for epoch in stream.tolist()}) > 3
    assert not np.array_equal(fine_tuning.batch_rows(7, 7, 0, 5), fine_tuning.batch_rows(7, 7, 0, 6))
    assert sorted(fine_tuning.batch_rows(3, 6, 0, 0).tolist()) == [0, 0, 1, 1, 2, 2]


def test_interrupted_run_goes_on(classifiers, tmp_path, monkeypatch):
    """Stopped in the middle of step 3 of 5, with dropout: the second start ends where the uninterrupted run does."""
    config = dataclasses.replace(CONFIG, dropout=0.1)
    tuners = [fine_tuning.Trainer(classifiers("bert")[1], config, fine_tuning.make_mesh(3)) for _ in range(3)]
    losses = tuners[0].train(TEXTS, Y)
    rows_of = fine_tuning.batch_rows

    def stop(num_rows: int, batch: int, step: int, seed: int) -> np.ndarray:
        if step == 3:
            raise KeyboardInterrupt
        return rows_of(num_rows, batch, step, seed)

    monkeypatch.setattr(fine_tuning, "batch_rows", stop)
    with pytest.raises(KeyboardInterrupt):
        tuners[1].train(TEXTS, Y, tmp_path, {"rows": "these"})
    monkeypatch.setattr(fine_tuning, "batch_rows", rows_of)
    assert tuners[2].train(TEXTS, Y, tmp_path, {"rows": "these"}) == losses[2:]
    jax.tree.map(np.testing.assert_array_equal, tuners[2]._params, tuners[0]._params)
    assert len(tuners[2].train(TEXTS, Y, tmp_path, {"rows": "others"})) == 5, "another run starts from the beginning"


def test_loss_that_is_not_finite(classifiers):
    _, ours = classifiers("gpt2")
    ours.head_kernel[...] = jnp.full((35, 3), jnp.nan)
    with pytest.raises(errors.UserError, match="the loss is nan at step 1: lower learning_rate=0.003"):
        fine_tuning.Trainer(ours, CONFIG, fine_tuning.make_mesh(3)).train(TEXTS, Y)


WORDS = {"0": ["cold", "grey", "rain", "wind", "storm"], "1": ["warm", "gold", "sun", "calm", "clear"]}
OPTIONS = {"steps": 30, "batch": 8, "learning_rate": 1e-3}
ONE = Task("weather", ("sentence",), "{sentence}:", ("0", "1"), ("bad", "good"))
TWO = Task("two", ("a", "b"), "{a} {b}:", ("0", "1"), ("no", "yes"), "first: {a}. second: {b}")
CLS, SEP, COLD, WARM = range(4)


def rows(count: int, seed: int) -> list[Example]:
    rng = np.random.default_rng(seed)
    labels = [str(number % 2) for number in range(count)]
    return [
        Example({"sentence": " ".join(rng.choice(WORDS[label], 5))}, label, row) for row, label in enumerate(labels)
    ]


@pytest.fixture(scope="module")
def model() -> lm.LanguageModel:
    return lm.LanguageModel.from_pretrained("tiny")


def test_learns(model, predict, tmp_path):
    split = splits.draw(rows(40, 1), ONE, shots=8, demo_shots=2, seed=1)
    problem = method.Problem(ONE, split, rows(13, 2), model.tokenize)
    prediction = predict("fine_tuning", problem, model, checkpoints=str(tmp_path), **OPTIONS)
    assert prediction.classes_Q.tolist() == [int(row.label) for row in problem.evaluation]
    np.testing.assert_allclose(prediction.probabilities_QC.sum(1), 1, atol=1e-6)
    assert prediction.note.startswith("30 steps of 8 rows, last loss 0.")
    tokens = [len(model.tokenizer(row.fields["sentence"])["input_ids"]) for row in problem.evaluation]
    most = 3 * 30 * 8 * max(tokens)
    assert prediction.prompts == 13 and sum(tokens) + most / 2 < prediction.tokens <= sum(tokens) + most
    again = predict("fine_tuning", problem, model, checkpoints=str(tmp_path), **OPTIONS)
    np.testing.assert_array_equal(again.probabilities_QC, prediction.probabilities_QC)
    assert again.note == "30 steps of 8 rows"  # All of them were done before.
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:1])
    with pytest.raises(
        errors.UserError, match=r"checkpoints-\w+/30: damaged checkpoint \(.*\); remove it to begin anew"
    ):
        predict("fine_tuning", problem, model, checkpoints=str(tmp_path), **OPTIONS)


@pytest.mark.parametrize(("task", "shots", "steps", "batch"), [("mr", 8, 125, 16), ("dbpedia", 256, 250, 4)])
def test_published_numbers(task, shots, steps, batch):
    config = methods.FineTuningOptions().with_published(task, shots)
    assert (config.steps, config.batch, config.learning_rate, config.max_length) == (steps, batch, 1e-5, 256)
    assert (config.weight_decay, config.clip, config.dropout) == (0.01, 1.0, 0.1)
    chosen = methods.FineTuningOptions(steps=3, batch=5)
    assert chosen.with_published(task, shots) == chosen


@pytest.fixture(scope="module")
def of_bert() -> transformers.PreTrainedTokenizerFast:
    """A tokenizer that writes [CLS] a [SEP] b [SEP]."""
    words = {word: number for number, word in enumerate(("[CLS]", "[SEP]", "cold", "warm", "[UNK]"))}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    built.post_processor = tokenizers.processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, pad_token="[UNK]")


@pytest.mark.parametrize(
    ("task", "fields", "max_length", "tokens", "types"),
    [
        # The longer text of a pair is truncated first.
        (
            TWO,
            {"a": "cold " * 50, "b": "warm warm"},
            9,
            [CLS, COLD, COLD, COLD, COLD, SEP, WARM, WARM, SEP],
            [0] * 6 + [1] * 3,
        ),
        (ONE, {"sentence": ""}, 256, [CLS, SEP], [0, 0]),
    ],
)
def test_texts_for_bert(of_bert, task, fields, max_length, tokens, types):
    encoded = fine_tuning.encode(task, [Example(fields, "0")], of_bert, max_length, as_pairs=True)
    assert (encoded.tokens, encoded.types) == ((tokens,), (types,))


def test_texts_for_gpt2(model):
    """A pair is one text, and an empty text has a token to read."""
    pair = fine_tuning.encode(TWO, [Example({"a": "x", "b": "y"}, "0")], model.tokenizer, 256, as_pairs=False)
    assert pair.tokens == (model.tokenizer("first: x. second: y")["input_ids"],) and not any(pair.types[0])
    examples = [Example({"sentence": text}, "0") for text in ("", "cold rain and wind")]
    encoded = fine_tuning.encode(ONE, examples, model.tokenizer, 2, as_pairs=False)
    assert encoded.tokens == ([model.tokenizer.eos_token_id], model.tokenizer("cold rain and wind")["input_ids"][:2])
