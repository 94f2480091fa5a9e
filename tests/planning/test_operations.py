"""Counting operations: products as often as they run."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel
from knnprompt_jax.models import prefix_kernel
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


def test_a_kernel_counts_as_often_as_shards_run_it():
    """Two products of four rows of 32 queries with 64 keys and their own 32, in each of six heads; on three devices and on one."""

    def read(q_BSHK, k_GPK):
        mask_BSS, positions_BS = jnp.ones((4, 32, 32), bool), jnp.zeros((4, 32))
        return prefix_kernel.attend(
            *[q_BSHK] * 3, mask_BSS, positions_BS, k_GPK, k_GPK, jnp.int32(50), 1.0, None, None, "gpu"
        )

    with jax.sharding.use_abstract_mesh(AbstractMesh((1, 3), parallel.AXES)):
        by_shards = jax.make_jaxpr(read)(jnp.zeros((4, 32, 6, 32)), jnp.zeros((6, 64, 32)))
    alone = jax.make_jaxpr(read)(jnp.zeros((4, 32, 6, 32)), jnp.zeros((6, 64, 32)))
    assert {operations.count(traced.jaxpr) for traced in (by_shards, alone)} == {2 * 2 * 6 * 128 * (64 + 32) * 32}


def test_shards_of_all_axes_count_once():
    mesh = AbstractMesh((2, 3), parallel.AXES)
    product = jax.shard_map(jnp.dot, mesh=mesh, in_specs=(P(parallel.AXES), P()), out_specs=P(parallel.AXES))
    traced = jax.make_jaxpr(product)(jnp.zeros((12, 5)), jnp.zeros((5, 7)))
    assert operations.count(traced.jaxpr) == 2 * 2 * 5 * 7
