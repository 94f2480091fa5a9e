"""From train rows, or a saved classifier, to the options that do best on them: a pass per number of demonstrations."""

import dataclasses
import pathlib
from collections.abc import Mapping

from knnprompt_jax import errors
from knnprompt_jax import lm as lm_lib
from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import estimator, tuning
from knnprompt_jax.classifier import options as knn_options
from knnprompt_jax.runs import engine, material
from knnprompt_jax.runs import settings as settings_lib


@dataclasses.dataclass(frozen=True)
class TuningSettings(
    settings_lib.TaskOptions, knn_options.PromptOptions, settings_lib.RowOptions, settings_lib.ModelOptions
):
    """What to choose from, and on which rows."""

    store: str = options_lib.option(
        "", "Folder of a saved classifier instead, with its model, rows and demonstrations."
    )
    demo_shots: tuple[int, ...] = options_lib.option(
        (-1,), "Demonstrations per class, a pass each; -1: as many as the context holds, or 2 in long ones.", least=-1
    )
    k: tuple[int, ...] = options_lib.option(tuning.KS, "Neighbours to try.", least=1, needed=True)
    tie_break: str = options_lib.option(
        knn_options.DEFAULTS.tie_break,
        "Of equal votes, the lowest class or the nearest's.",
        choices=knn_options.TIE_BREAKS,
    )
    seed: int = options_lib.option(0, "Seed of the draw of demonstrations.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.demo_shots:
            raise errors.UserError("demo_shots=(): choose numbers from 0, or -1 for what the context holds")


def run(settings: TuningSettings) -> dict[int, tuning.Tuning]:
    """The leave-one-out accuracies for each number of demonstrations per class; raises UserError on anything that cannot work."""
    mesh = engine.make_mesh(settings, [settings.model])
    if settings.store:
        saved = estimator.KNNPrompting.load(pathlib.Path(settings.store), mesh=mesh)
        return {saved.demo_shots or 0: saved.tune(settings.k)}
    task, rows = material.load_train(settings, settings.task, settings.train_file)
    model = lm_lib.LanguageModel.from_pretrained(
        settings.model, settings.dtype, settings.revision or None, settings.batch or None, mesh
    )
    tunings = {}
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
        tunings[shots] = classifier.tune(settings.k)
    return tunings


def summarize(tunings: Mapping[int, tuning.Tuning]) -> str:
    """The text that the binary prints: a table for each number of demonstrations, and the best of all."""
    parts = [f"{_shots(shots)}: {each}" for shots, each in tunings.items()]
    if len(tunings) > 1:
        shots, best = max(tunings.items(), key=lambda pair: pair[1].best.accuracy)
        parts.append(f"best of all: {_shots(shots)}, {best.suggestion}")
    return "\n\n".join(parts)


def _shots(shots: int) -> str:
    return "demo_shots=-1 (what the context holds)" if shots < 0 else f"demo_shots={shots}"
