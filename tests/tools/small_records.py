"""Records of seven rows, of which the first are right, and a small grid of them."""

from collections.abc import Iterator
from typing import Any

from knnprompt_jax.report import records
from tests.study import small_world as conftest


def make(
    method: str, task: str, m: int, seed: int, right: int, model: str = "smollm2", **changes: Any
) -> records.Record:
    """Return a record of seven rows, of which the first `right` are right."""
    changes = {"settings": {"options": {"distance": "kl"} if method == "knn" else {}}} | changes
    return conftest.make_record(
        model=model,
        method=method,
        task=task,
        shots=m,
        seed=seed,
        predicted=("1",) * right + ("0",) * (7 - right),
        true=("1",) * 7,
        file_name=f"{task}-{method}-m{m}-{seed}.json",
        **changes,
    )


def grid(**changes: Any) -> Iterator[records.Record]:
    """Yield records of two methods on two tasks: in-context learning has m = 2, and no seed 3 on CR."""
    for task, seeds in (("mr", (1, 2, 3)), ("cr", (1, 2))):
        for seed in seeds:
            yield make("icl", task, 2, seed, seed, **changes)
        for m in (8, 32):
            for seed in (1, 2, 3):
                yield make("knn", task, m, seed, seed + 2, **changes)
