"""One language-model pass serves every method; on a small random GPT-2 with the shipped tokenizer and rows."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from knnprompt_jax import errors, lm, progress
from knnprompt_jax.methods import method, registry, shared_pass
from knnprompt_jax.models import decoder, shipped, tokenizers
from knnprompt_jax.models import registry as models
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks import catalogue, sources, splits
from knnprompt_jax.tasks.task import Example
from tests.methods import whole_texts

pytest.importorskip("sklearn")
SIZES = {"vocab_size": 5120, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20}
CONTEXT = 331
FAST = {"proca": {"restarts": 2}}
# Label words are single tokens here, so that "icl_multi_token" reads states alone as well; an ensemble cannot.
ON_STATES = [name for name, one in registry.METHODS.items() if one.needs and name != "icl_ensemble"]
DEMO, TREC = catalogue.get("demo"), catalogue.get("trec")
SOME = ["icl", "contextual_calibration", "knn", "linear_probe"]


@pytest.fixture(scope="module")
def decoder_model():
    config = models.config_from_hf({"model_type": "gpt2", **SIZES, "n_positions": CONTEXT})
    model = decoder.Decoder(config, nnx.Rngs(0))
    rng = np.random.default_rng(0)
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        # Distributions that are peaked and depend on the text.
        noise = rng.normal(size=leaf.shape) * (0.5 if len(path) == 1 else 0.25)
        leaf.set_value(jnp.asarray(1 + noise if path[-1] == "scale" else noise, jnp.float32))
    return model


@pytest.fixture(scope="module")
def model(decoder_model):
    return lm.LanguageModel(decoder_model, tokenizers.load(shipped.locate("tiny")), step_tokens=512)


@pytest.fixture(scope="module")
def given(model):
    split = splits.draw(sources.load_rows(DEMO, "train"), DEMO, shots=5, demo_shots=1, seed=1)
    return method.Problem(DEMO, split, sources.load_rows(DEMO, "dev_subsample")[:11], model.tokenize)


@pytest.fixture
def passes(monkeypatch):
    """The numbers of prompts of the passes made."""
    made, states = [], lm.LanguageModel.states

    def counted(self, prompts, *args):
        made.append(prompts.num_prompts)
        return states(self, prompts, *args)

    monkeypatch.setattr(lm.LanguageModel, "states", counted)
    return made


def log_p_of_whole_prompts(decoder_model, problem, queries):
    """log p [Q, V] after whole prompts (their last `CONTEXT` tokens): no prefix, no packing, padded on the right."""
    head = "".join(problem.task.render(row, row.label) + "\n" for row in problem.split.demonstrations)
    prompts = [tokens[-CONTEXT:] for tokens in problem.tokenize([head + problem.task.render(row) for row in queries])]
    tokens_QT = np.array([tokens + [0] * (CONTEXT - len(tokens)) for tokens in prompts])
    last_QE = read_whole(decoder_model, tokens_QT)[np.arange(len(prompts)), [len(tokens) - 1 for tokens in prompts]]
    return np.asarray(jax.nn.log_softmax(decoder_model.logits(last_QE)), np.float64)


@nnx.jit
def read_whole(decoder_model, tokens_QT):
    return decoder_model(tokens_QT)


def test_one_pass_serves_all_methods(model, given, passes):
    planned = shared_pass.plan(given, ON_STATES, model.context, options=FAST)
    results = shared_pass.run(model, planned)
    assert passes == [24 + 11 + 3 + 20] == [planned.prompts.num_prompts]
    assert list(results) == ON_STATES and len(ON_STATES) > 15
    for result in results.values():
        assert result.classes_Q.shape == (11,) and result.probabilities_QC.shape == (11, 6)
        np.testing.assert_allclose(result.probabilities_QC.sum(-1), 1, atol=1e-5)
        assert result.seconds > 0
    assert len({tuple(result.classes_Q) for result in results.values()}) > 3
    assert results["icl"].lm_tokens < results["contextual_calibration"].lm_tokens < results["linc"].lm_tokens
    assert results["linc"].lm_tokens < model.statistics.prefix_tokens + model.statistics.suffix_tokens


@pytest.mark.parametrize("name", ["contextual_calibration", "knn"])
def test_alone_a_method_predicts_the_same_and_reads_its_own_prompts(model, given, name):
    together = shared_pass.run(model, shared_pass.plan(given, SOME, model.context))[name]
    before = dataclasses.replace(model.statistics)
    alone = shared_pass.run(model, shared_pass.plan(given, [name], model.context))[name]
    np.testing.assert_array_equal(alone.classes_Q, together.classes_Q)
    np.testing.assert_allclose(alone.probabilities_QC, together.probabilities_QC, atol=1e-3)
    read = model.statistics.prefix_tokens + model.statistics.suffix_tokens - before.prefix_tokens - before.suffix_tokens
    assert 0 < read <= alone.lm_tokens <= together.lm_tokens  # Packing reads common beginnings once.


@pytest.mark.parametrize("demo_shots", [1, 3])
def test_whole_prompts_give_the_same(decoder_model, model, given, demo_shots):
    """In-context learning, contextual calibration and 3 nearest in KL, by NumPy from prompts read one at a time.

    With 3 demonstrations a class, prompts exceed the context and lose tokens on the left; one query is empty.
    """
    split = splits.draw(sources.load_rows(DEMO, "train"), DEMO, shots=5, demo_shots=demo_shots, seed=2)
    problem = dataclasses.replace(
        given, split=split, evaluation=[*given.evaluation[:4], Example({"sentence": ""}, "0")]
    )
    planned = shared_pass.plan(problem, ["icl", "contextual_calibration", "knn"], model.context)
    assert bool(planned.prompts.num_truncated) == (demo_shots == 3)
    results = shared_pass.run(model, planned)

    label_ids = layout.label_ids(DEMO, model.tokenize)
    log_p_QV = log_p_of_whole_prompts(decoder_model, problem, problem.evaluation)
    p_QC = np.exp(log_p_QV)[:, label_ids]
    content_free = [Example({"sentence": text}, "0") for text in ("N/A", "", "[MASK]")]
    bias_C = np.exp(log_p_of_whole_prompts(decoder_model, problem, content_free))[:, label_ids].mean(0)
    for name, scores_QC in (("icl", p_QC), ("contextual_calibration", p_QC / bias_C)):
        np.testing.assert_allclose(
            results[name].probabilities_QC, scores_QC / scores_QC.sum(-1, keepdims=True), atol=1e-3
        )
        np.testing.assert_array_equal(results[name].classes_Q, scores_QC.argmax(-1))

    log_k_NV = log_p_of_whole_prompts(decoder_model, problem, split.anchors)
    divergence_QN = (np.exp(log_p_QV)[:, None] * (log_p_QV[:, None] - log_k_NV)).sum(-1)
    y = np.array([DEMO.class_index(row.label) for row in split.anchors])
    k = min(3, 5 - demo_shots)
    votes_QC = np.eye(6)[y[divergence_QN.argsort(-1)[:, :k]]].sum(1)
    np.testing.assert_array_equal(results["knn"].classes_Q, votes_QC.argmax(-1))


def test_passes_of_a_methods_own_are_counted(model, given, monkeypatch):
    def twice(context, *, note):
        prompts = layout.lay_out(DEMO, (), given.evaluation, given.tokenize, context.model.context)
        context.model.states(prompts)
        return method.Prediction(np.zeros(11, int), note=note)

    own = method.Method("own", "Own", twice, options={"note": ""})
    monkeypatch.setitem(registry.METHODS, "own", own)
    planned = shared_pass.plan(given, ["own", "icl"], model.context, options={"own": {"note": "chosen"}})
    result = shared_pass.run(model, planned)["own"]
    alone = layout.lay_out(DEMO, (), given.evaluation, given.tokenize, model.context).groups[0]
    assert 0 < result.lm_tokens <= len(alone.prefix_P) + sum(map(len, alone.suffixes))
    assert result.note == "chosen" and result.probabilities_QC is None


def test_no_shared_prompts_no_pass(model, given, monkeypatch, passes):
    own = method.Method("own", "Own", lambda context: method.Prediction(np.zeros(11, int)))
    monkeypatch.setitem(registry.METHODS, "own", own)
    result = shared_pass.run(model, shared_pass.plan(given, ["own"], model.context))["own"]
    assert result.lm_tokens == 0 and passes == [0]


@pytest.mark.parametrize(
    "name", ["icl", "icl_multi_token", "icl_ensemble", "prompt_compose_bm25", "demonstration_upper_bound"]
)
def test_one_truncation_for_all_passes(name):
    """Prompts too long are refused where they are to be, in the shared pass or in one's own."""
    options = {"num_prompts": 2} if name == "demonstration_upper_bound" else {}
    problem = whole_texts.make_problem(TREC, 4, 5, whole_texts.queries(TREC, 3))
    assert whole_texts.run(problem, name, **options).classes_Q.shape == (3,)
    with pytest.raises(errors.UserError, match=f"the context {whole_texts.CONTEXT}"):
        whole_texts.run(dataclasses.replace(problem, truncation="error"), name, **options)


@pytest.mark.parametrize("name", ["icl_multi_token", "icl_ensemble", "prompt_compose_bm25", "noisy_channel"])
def test_passes_of_ones_own_show_their_progress(name, monkeypatch):
    shown = []

    @contextlib.contextmanager
    def bar(total, title):
        done = []
        yield lambda prompts, tokens: done.append(prompts)
        shown.append((title, total, sum(done)))

    monkeypatch.setattr(progress, "bar", bar)
    whole_texts.run(whole_texts.make_problem(TREC, 1, 1, whole_texts.queries(TREC, 3)), name)
    ((title, total, done),) = shown
    assert title.startswith("seed 1, ") and total == done > 0


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["icl", "bert"], {}, "unknown method 'bert': choose from icl, knn,"),
        (["icl"], {"bert": {}}, "unknown method 'bert': choose from icl, knn,"),
        (["knn"], {"knn": {"c": 1}}, "method 'knn' has no option 'c': choose from k, direction"),
        (
            ["prompt_compose_bm25"],
            {"prompt_compose_bm25": {"order": "up"}},
            "order='up': choose from nearest_first, near",
        ),
        (["prompt_compose_sbert"], {"prompt_compose_sbert": {"retriever": "./no"}}, "no such folder: ./no"),
        (["demonstration_upper_bound"], {"demonstration_upper_bound": {"num_prompts": 0}}, "num_prompts=0: at least 1"),
        (["knn"], {"knn": {"k": 0}}, "k=0: at least 1 neighbour"),
        (["knn_l2"], {"knn_l2": {"centroid": "geometric"}}, "averages distributions: choose representation"),
        (["linc"], {"linc": {"rows": 0}}, "rows=0: at least 1 is needed"),
        (["linc"], {"linc": {"learning_rate": float("nan")}}, "learning_rate=nan: at least 0"),
        (["proca"], {"proca": {"restarts": 0}}, "restarts=0: at least 1"),
        (["linear_probe"], {"linear_probe": {"inverse_penalty": -1.0}}, "inverse_penalty=-1.0: a positive number"),
        (["contextual_calibration"], {"contextual_calibration": {"prior": "even"}}, "prior='even': choose from bal"),
        (["fine_tuning"], {"fine_tuning": {"dtype": "half"}}, "dtype='half': choose from float32, bfloat16"),
        (["fine_tuning_bert"], {"fine_tuning_bert": {"model": "./no"}}, "no such folder: ./no"),
    ],
)
def test_mistakes_show_before_the_pass(model, given, names, options, message):
    with pytest.raises(errors.UserError, match=message):
        shared_pass.plan(given, names, model.context, options=options)
