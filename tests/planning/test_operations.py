"""Counting operations: products as often as they run."""

import jax
import jax.numpy as jnp
import pytest

from knnprompt_jax.planning import operations


def scanned(x, y):
    return jax.lax.scan(lambda carry, _: (carry @ y, None), x, None, length=11)[0]


def chosen(x, y):
    return jax.lax.cond(x[0, 0] > 0, lambda: x @ y @ y, lambda: x)


def batched(x, y):
    return jnp.einsum("ij,bjk->bik", x, jnp.stack([y, y, y]))


@pytest.mark.parametrize(
    ("function", "times"), [(jnp.matmul, 1), (scanned, 11), (chosen, 2), (batched, 3), (jnp.add, 0)]
)
def test_products_count_as_often_as_they_run(function, times):
    x, y = jnp.zeros((7, 5) if times else (5, 5)), jnp.zeros((5, 5))
    assert operations.count(jax.make_jaxpr(function)(x, y).jaxpr) == times * 2 * 7 * 5 * 5
