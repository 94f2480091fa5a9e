"""From train rows to the settings that do best on them: a pass of the model for each number of demonstrations."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import estimator, tuning
from knnprompt_jax.models import shipped
from knnprompt_jax.tasks import catalogue, sources


@dataclasses.dataclass(frozen=True)
class TuningSettings:
    """See configs/tune.py for each option's meaning."""

    model: str = shipped.DEFAULT
    revision: str = ""
    dtype: str = "float32"
    batch: int = 0
    mesh_data: int = 0
    mesh_model: int = 1
    task: str = "demo"
    data_dir: str = ""
    train_file: str = ""
    encoding: str = "utf-8"
    hub: bool = False
    restore_dropped: bool = False
    demo_shots: tuple[int, ...] = (-1,)
    k: tuple[int, ...] = tuning.KS
    tie_break: str = "lowest"
    truncation: str = "left"
    label_token: str = "last"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.demo_shots or min(self.demo_shots) < -1:
            raise errors.UserError(
                f"demo_shots={self.demo_shots}: choose numbers from 0, or -1 for what the context holds"
            )


def run(settings: TuningSettings) -> dict[int, tuning.Tuning]:
    """The leave-one-out accuracies for each number of demonstrations a class.

    Raises:
      UserError: on anything in the settings, the rows or the model that cannot work.
    """
    task = catalogue.get(settings.task)
    rows = sources.load_rows(
        task,
        "train",
        data_dir=settings.data_dir or None,
        path=settings.train_file or None,
        encoding=settings.encoding,
        hub_source=catalogue.hub_source(settings.task) if settings.hub else None,
        restore_dropped=settings.restore_dropped,
    )
    options: dict[str, Any] = {
        "dtype": settings.dtype,
        "revision": settings.revision or None,
        "step_tokens": settings.batch or None,
        "mesh": parallel.make_mesh(settings.mesh_data, settings.mesh_model),
    }
    model = lm_lib.LanguageModel.from_pretrained(settings.model, **options)
    found = {}
    for shots in settings.demo_shots:
        classifier = estimator.KNNPrompting(
            model,
            task,
            k=1,
            demo_shots=None if shots < 0 else shots,
            tie_break=settings.tie_break,
            truncation=settings.truncation,
            label_token=settings.label_token,
            random_state=settings.seed,
        )
        classifier.fit([row.fields for row in rows], [row.label for row in rows])
        found[shots] = classifier.tune(settings.k)
    return found


def summarize(found: Mapping[int, tuning.Tuning]) -> str:
    """The text that the binary prints: a table for each number of demonstrations, and the best of all."""
    parts = [f"{_shots(shots)}: {one}" for shots, one in found.items()]
    if len(found) > 1:
        shots, one = max(found.items(), key=lambda pair: pair[1].best.accuracy)
        parts.append(f"best of all: {_shots(shots)}, {one.suggestion}")
    return "\n\n".join(parts)


def _shots(shots: int) -> str:
    return "demo_shots=-1 (what the context holds)" if shots < 0 else f"demo_shots={shots}"
