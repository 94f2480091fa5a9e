"""`compare` on the demo task over all devices against a CPU: every prediction."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

from knnprompt_jax import parallel
from knnprompt_jax.check import check
from knnprompt_jax.check import subject as subject_lib
from knnprompt_jax.runs import comparison
from knnprompt_jax.settings import shared

_METHODS = ("icl", "knn")


def run(subject: subject_lib.Subject) -> Iterator[check.Finding]:
    """Compare in-context learning and kNN Prompting with the tiny model in float32, row for row."""
    with tempfile.TemporaryDirectory() as folder:
        settings = shared.ComparisonSettings(
            model=subject_lib.TINY, methods=_METHODS, shots=4, demo_shots=1, seeds=(1,), cache_gb=0, output=folder
        )
        predicted = []
        for name, mesh in (("device", parallel.make_mesh()), ("cpu", subject.cpu)):
            own = dataclasses.replace(settings, output=str(pathlib.Path(folder) / name))
            records = comparison.compare(own, subject.model(subject_lib.TINY, mesh))
            predicted.append([label for record in records for label in record.predicted])
    assert len(predicted[0]) == len(predicted[1])
    yield check.Comparison(
        f"predictions of {' and '.join(_METHODS)}, of {len(predicted[0])} rows those that differ from a CPU's",
        sum(ours != theirs for ours, theirs in zip(*predicted, strict=True)),
        0,
        "float32 decides no row of this task by rounding",
    )


CHECKS = (check.Check("main job", run),)
