"""I2CL: what is put out and put in, by hand in a decoder of one block; the fit of strengths; predictions from whole texts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from knnprompt_jax.methods import context_vectors
from knnprompt_jax.models import inside
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks import catalogue
from tests.methods import whole_texts

TREC = catalogue.get("trec")
SETTINGS = context_vectors.Settings(rows=1, epochs=2)


@pytest.fixture(scope="module")
def decoder():
    return whole_texts.model().execution.decoder


@pytest.fixture
def problem():
    return whole_texts.make_problem(TREC, 1, 1, whole_texts.queries(TREC, 3))


def residual(decoder, tokens, change):
    """The residual stream, block by block; `change` is made to the output of each part of each block."""
    x_BTD = decoder._embed(tokens, np.arange(tokens.shape[1]))
    for layer in range(decoder.config.num_layers):
        block = jax.tree.map(lambda stacked, layer=layer: stacked[layer], decoder.blocks)
        normed_BTD = block.attention_norm(x_BTD)
        q, (k, v) = (
            block.attention.queries(normed_BTD, lambda x: x),
            block.attention.keys_and_values(normed_BTD, lambda x: x),
        )
        read_BTHK = decoder._causal(layer, tokens.shape[1])(q, k, v)
        x_BTD = x_BTD + change(layer, 0, block.attention.output(read_BTHK))
        x_BTD = x_BTD + change(layer, 1, block.mlp(block.mlp_norm(x_BTD)))
    return x_BTD


def test_outputs_are_what_each_part_adds(decoder):
    tokens, heard = np.array([[5, 9, 2, 77], [3, 1, 4, 1]]), {}
    residual(decoder, tokens, lambda layer, part, output: heard.setdefault((layer, part), output))
    added = inside.added(decoder, tokens)
    assert added.shape == (2, 2, 2, 4, 14)
    for (layer, part), output in heard.items():
        np.testing.assert_allclose(added[layer, part], output, rtol=1e-4, atol=1e-4)


def test_vectors_go_in_with_their_strengths(decoder):
    rng, tokens = np.random.default_rng(0), np.array([[5, 9, 2, 77]])
    vectors, strengths = rng.normal(size=(2, 2, 14)), rng.normal(size=(2, 2, 2))

    def change(layer, part, output):
        return strengths[layer, part, 0] * vectors[layer, part] + strengths[layer, part, 1] * output

    want_BTD = residual(decoder, tokens, change)
    injection = inside.Injection(jnp.asarray(vectors, jnp.float32), jnp.asarray(strengths, jnp.float32))
    found_BTE = decoder(tokens, dropout=injection)
    np.testing.assert_allclose(found_BTE, decoder.final_norm(want_BTD), rtol=2e-3, atol=2e-3)
    same_BTE = decoder(
        tokens, dropout=inside.Injection(jnp.zeros((2, 2, 14)), jnp.tile(jnp.array([3.0, 1.0]), (2, 2, 1)))
    )
    np.testing.assert_allclose(same_BTE, decoder(tokens), rtol=1e-5, atol=1e-5)


def test_noise_is_a_share_of_the_norm(decoder):
    output_BTD = jnp.asarray(np.random.default_rng(2).normal(size=(7, 5, 1000)))
    injection = inside.Injection(jnp.zeros((2, 2, 1000)), jnp.ones((2, 2, 2)), jax.random.key(1), 0.5)
    noise_BTD = injection.at(jnp.array(1)).at(inside.PARTS[1])(output_BTD) - output_BTD
    share_BT = jnp.linalg.norm(noise_BTD, axis=-1) / jnp.linalg.norm(output_BTD, axis=-1) / np.sqrt(1000)
    np.testing.assert_allclose(share_BT, 0.5, rtol=0.15)


def test_vectors_are_means_at_the_last_tokens(decoder):
    tokens = [[5, 9, 2], [3, 1, 4, 1, 5], [7]]
    want = np.mean([inside.added(decoder, np.array([own]))[:, :, 0, -1] for own in tokens], axis=0)
    np.testing.assert_allclose(context_vectors.mean_vectors(decoder, tokens), want, rtol=1e-3, atol=1e-3)


def test_the_released_schedule():
    """10 epochs of 4 steps: int(0.05 · 10 · 4) = 2 steps of warm-up; then the cosine of all steps."""
    rate = context_vectors.schedule(context_vectors.Settings(epochs=10, learning_rate=2.0), 40)
    want = [0, 1, 2, *(1 + np.cos(np.pi * step / 40) for step in range(3, 40))]
    np.testing.assert_allclose([rate(step) for step in range(40)], want, rtol=1e-4)


def test_fitting_makes_labels_more_probable(decoder, problem):
    tokens = [whole_texts.tokens(TREC.render(row)) for row in problem.split.demonstrations]
    labels_N = np.array(layout.label_ids(TREC, problem.tokenize))
    vectors_LPD = context_vectors.mean_vectors(decoder, tokens)

    def loss(strengths):
        log_p = []
        for own, label in zip(tokens, labels_N, strict=True):
            h_E = decoder(np.array([own]), dropout=inside.Injection(vectors_LPD, strengths))[0, -1]
            log_p.append(special.log_softmax(np.asarray(decoder.head.logits(h_E), np.float64))[label])
        return -np.mean(log_p)

    settings = context_vectors.Settings(rows=1, epochs=20, learning_rate=0.01)
    start = jnp.tile(jnp.array([0.1, 1.0]), (2, 2, 1))
    strengths = context_vectors.fit(decoder, vectors_LPD, tokens, labels_N, settings, seed=1)
    assert strengths.shape == (2, 2, 2) and loss(strengths) < loss(start)
    again = context_vectors.fit(decoder, vectors_LPD, tokens, labels_N, settings, seed=1)
    np.testing.assert_array_equal(again, strengths)


def test_predicts_without_demonstrations(decoder, problem, predict):
    result = predict("i2cl", problem, whole_texts.model(), rows=1, epochs=2)
    rows = context_vectors.chosen_rows(problem, SETTINGS)
    assert [row.row for row in rows] == [row.row for row in problem.split.demonstrations]
    label_ids = np.array(layout.label_ids(TREC, problem.tokenize))
    vectors_LPD = context_vectors.mean_vectors(
        decoder, [whole_texts.tokens(TREC.render(row, row.label).rstrip()) for row in rows]
    )
    asked = [whole_texts.tokens(TREC.render(row)) for row in rows]
    strengths = context_vectors.fit(decoder, vectors_LPD, asked, label_ids, SETTINGS, problem.split.seed)
    for query, found_C in zip(problem.evaluation, result.probabilities_QC, strict=True):
        tokens = np.array([whole_texts.tokens(TREC.render(query))])
        h_E = decoder(tokens, dropout=inside.Injection(vectors_LPD, strengths))[0, -1]
        np.testing.assert_allclose(found_C, special.softmax(np.asarray(decoder.head.logits(h_E))[label_ids]), atol=2e-3)
    assert result.note == "vectors of 6 rows, read alone" and result.prompts == 6 + 3
    queries = [whole_texts.tokens(TREC.render(query)) for query in problem.evaluation]
    shown = [whole_texts.tokens(TREC.render(row, row.label).rstrip()) for row in rows]
    assert result.tokens == sum(map(len, shown + queries)) + 3 * 2 * sum(map(len, asked)), "a step thrice, of 2 epochs"
