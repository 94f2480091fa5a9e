"""From train rows, or a saved classifier, to the rule that does best on them: a pass per number of demonstrations."""

import dataclasses
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import choosing, estimator, inputs, saving, trials, tuning
from knnprompt_jax.methods import baselines
from knnprompt_jax.runs import engine, fitting, material
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks.task import Example, Task


@dataclasses.dataclass(frozen=True)
class TuningSettings(settings_lib.TaskOptions, settings_lib.ReadingOptions, settings_lib.RowOptions):
    """What to choose from, and on which rows."""

    store: str = options_lib.option(
        "", "Folder of a saved classifier instead, with its model, rows and demonstrations: no pass."
    )
    apply: bool = options_lib.option(False, "Save the best in that folder.")
    metric: str = options_lib.option(choosing.METRICS[0], "What is compared.", choices=choosing.METRICS)
    demo_shots: tuple[int, ...] = options_lib.option(
        (-1, 2, 0),
        "Demonstrations per class, a pass each; -1: as many as the context holds, or 2 in long ones.",
        least=-1,
    )
    k: tuple[int, ...] = options_lib.option(tuning.KS, "Neighbours to try.", least=1, needed=True)
    seed: int = options_lib.option(0, "Seed of the draw of demonstrations.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.demo_shots:
            raise errors.UserError("demo_shots=(): choose numbers from 0, or -1 for what the context holds")
        if self.apply and not self.store:
            raise errors.UserError("apply=True: name the folder of a saved classifier (store)")


# Of the options that `fit` has too, those that its command names where they are not its defaults.
_SHARED = (
    *("seed", "label_column", "text_columns", "encoding", "revision", "dtype", "deterministic"),
    *("truncation", "label_token"),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was tried, the command that uses the best, and whether it is in the folder already."""

    tuning: tuning.Tuning
    command: str
    applied: bool = False


def run(settings: TuningSettings) -> Result:
    """Tries everything, and saves the best where that is asked for; raises UserError on anything that cannot work."""
    mesh = engine.make_mesh(settings, [settings.model])
    if settings.store:
        folder = saving.absolute(pathlib.Path(settings.store))
        with saving.lock(folder):
            saved = estimator.KNNPrompting.load(folder, mesh=mesh)
            tried = saved.tune(settings.metric, settings.k)
            if settings.apply:
                saving.save(saved.use(tried.choice), folder, overwrite=True)
        command = f"knnprompt tune --store={shlex.quote(settings.store)} --metric={settings.metric} --apply"
        anchors = list(saved.anchors_.values())
        tried = _with_baselines(_telling(tried, settings.k, len(anchors)), saved.task, anchors)
        return Result(tried, command, settings.apply)
    task, rows = material.load_train(settings, settings.task, settings.train_file)
    model = engine.load(settings, material.load_model(settings.model, settings.revision), mesh)
    classifier = estimator.KNNPrompting(
        model,
        task,
        demo_shots=tuple(None if shots < 0 else shots for shots in settings.demo_shots),
        metric=settings.metric,
        truncation=settings.truncation,
        label_token=settings.label_token,
        random_state=settings.seed,
    )
    examples = inputs.labelled(task, [row.fields for row in rows], [row.label for row in rows])
    draws = trials.draws(classifier, examples)
    choice = trials.choose(classifier, draws, grid=choosing.Grid(ks=settings.k))
    anchors = trials.compared(classifier, draws)
    tried = _telling(tuning.of(classifier, anchors, choice), settings.k, len(anchors))
    return Result(_with_baselines(tried, task, anchors), _command(settings, choice.rule))


def summarize(result: Result) -> str:
    """The text that the binary prints: the table, and what to do with it."""
    told = "saved" if result.applied else f"to use it: {result.command}"
    return f"{result.tuning}\n{told}"


def _telling(tried: tuning.Tuning, ks: Sequence[int], num_anchors: int) -> tuning.Tuning:
    """With a warning of ks that there are not enough anchors for."""
    if not (left := sorted({k for k in ks if k >= num_anchors})):
        return tried
    told = f"k={', '.join(map(str, left))} left out: there are {num_anchors - 1} other anchors"
    return dataclasses.replace(tried, warnings=(*tried.warnings, told))


def _with_baselines(tried: tuning.Tuning, task: Task, anchors: Sequence[Example]) -> tuning.Tuning:
    """With the scores of what reads no states, on the same anchors: the commonest class, and TF-IDF in five folds."""
    y_N = inputs.classes_of(task, anchors)
    shares_C = np.bincount(y_N, minlength=task.num_classes) / len(y_N)
    commonest = choosing.Outcome.of(np.tile(shares_C, (len(y_N), 1)), y_N).score
    beside = {"commonest class": commonest}
    texts, folds_N = np.array(baselines.bare_texts(task, anchors), object), choosing.folds(y_N)
    p_NC = np.zeros((len(y_N), task.num_classes))
    try:
        for fold in np.unique(folds_N):
            out = folds_N == fold
            given = task.num_classes, texts[~out].tolist(), y_N[~out], texts[out].tolist()
            p_NC[out] = baselines.predict_proba(baselines.Settings(), *given)
    except ValueError:  # No text of the other folds has a word.
        return dataclasses.replace(tried, beside=beside)
    beside["TF-IDF, logistic regression"] = choosing.Outcome.of(p_NC, y_N).score
    return dataclasses.replace(tried, beside=beside)


def _command(settings: TuningSettings, rule: choosing.Rule) -> str:
    """What makes a classifier by this rule of the same rows."""
    named = rule.named
    if settings.train_file:
        fit = fitting.FitSettings(train_file=settings.train_file, store="my_classifier")
        differing = [name for name in _SHARED if getattr(settings, name) != getattr(fit, name)]
        flags = [(name, getattr(settings, name)) for name in ("model", "task", "train_file", *differing)]
        flags += [("store", fit.store), ("demo_shots", rule.demo_shots)]
        flags += [(f"knn.{name}", value) for name, value in named.items()]
        return " ".join(["knnprompt fit", *(f"--{name}={shlex.quote(_written(value))}" for name, value in flags)])
    given = ", ".join(f"{name}={value!r}" for name, value in [*named.items(), ("demo_shots", rule.demo_shots)])
    return f"KNNPrompting(model, task, {given})"


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
