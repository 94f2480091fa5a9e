"""Find the rule that does best on train rows, or on a saved classifier's anchors: a pass per number of demonstrations."""

import dataclasses
import pathlib
import shlex
from collections.abc import Sequence

import numpy as np

from knnprompt_jax import errors, states
from knnprompt_jax.classifier import estimator, saving, trials
from knnprompt_jax.classifier import inputs as classifier_inputs
from knnprompt_jax.methods import baselines as baseline_methods
from knnprompt_jax.rules import choosing
from knnprompt_jax.rules import rule as rules
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import classifiers, commands, methods, shared
from knnprompt_jax.tasks.task import Example, Task

# Options that `fit` has too. The printed command names those that are not its defaults.
_SHARED = (
    *("train_file", *(field.name for field in dataclasses.fields(shared.RowOptions))),
    *("dtype", "deterministic", "truncation", "label_token"),
)


@dataclasses.dataclass(frozen=True)
class Result:
    """The comparison, the command that uses the best candidate, and the folder where it was saved, if it was."""

    tuning: trials.Tuning
    command: str
    saved: str = ""


def run(settings: commands.TuningSettings) -> Result:
    """Compare all candidates and save the best if requested; raise UserError on anything that cannot work."""
    saved = saving.read(pathlib.Path(settings.store)) if settings.store else None
    if saved and settings.model not in (None, saved.manifest.provenance.model):
        raise errors.UserError(f"--model={settings.model}: {settings.store} has a model of its own; leave it out")
    model = inputs.read_model(settings.model, settings, saved)
    if saved:
        folder = saving.absolute(pathlib.Path(settings.store))
        with saving.lock(folder):
            saved = saving.read(folder)
            saved.check(model.identity)
            classifier = estimator.restore(saved, model)
            tried = classifier.tune(settings.metric, settings.k)
            if settings.apply:
                saving.save(classifier.use(tried.choice), folder, overwrite=True)
        given = {"store": settings.store, "metric": settings.metric, "k": ",".join(map(str, settings.k))}
        usual = {"k": ",".join(map(str, classifiers.TUNED_KS))}
        flags = [
            f"--{name}={shlex.quote(value)}" for name, value in given.items() if value and value != usual.get(name)
        ]
        command = " ".join(["knnprompt tune", *flags, "--apply"])
        anchors = list(classifier.anchors_.values())
        return Result(_complete(tried, settings.k, classifier.task, anchors), command, settings.store * settings.apply)
    task, rows = inputs.load_train(settings, settings.task_name, settings.train_file or "")
    classifier = estimator.AutoClassifier(
        model,
        task,
        demo_shots=tuple(None if shots < 0 else shots for shots in settings.demo_shots or commands.TUNED_SHOTS),
        metric=settings.metric or classifiers.METRICS[0],
        truncation=settings.truncation,
        label_token=settings.label_token,
        random_state=settings.seed or 0,
    )
    classifier.states_cache = states.user_cache(settings.cache_gb) or classifier.states_cache
    draws = trials.draws(classifier, rows)
    most = max(len(anchors) for _, anchors in draws.values()) - 1
    if not (ks := tuple(k for k in settings.k if k <= most)):
        wanted = ",".join(map(str, settings.k))
        raise errors.UserError(f"--k={wanted}: choose from 1 to {most}: each anchor has {most} others")
    draws = {shots: draw for shots, draw in draws.items() if min(ks) < len(draw[1])}
    choice = trials.choose(classifier, draws, choosing.Grid(ks=ks), classifier.metric)
    anchors = trials.compared(classifier, draws)
    tried = trials.Tuning(choice, tuple(trials.warnings(classifier, anchors, choice)))
    return Result(_complete(tried, settings.k, task, anchors), _command(settings, model.name, choice.rule))


def summarize(result: Result) -> str:
    """Return what the binary prints: the table, and how to use the best candidate."""
    return f"{result.tuning}\n{f'saved: {pathlib.Path(result.saved)}/' if result.saved else f'to use it: {result.command}'}"


def _complete(tuning: trials.Tuning, ks: Sequence[int], task: Task, anchors: Sequence[Example]) -> trials.Tuning:
    """Add a warning of ks without enough anchors, and baselines that read no states, on the same anchors.

    The baselines are the most common class, and TF-IDF in five folds.
    """
    warnings = tuning.warnings
    tried = {candidate.rule.k for candidate in tuning.choice.candidates}
    if tried and (left_out := sorted({*ks} - tried)):
        warnings += (f"k={', '.join(map(str, left_out))} left out: there are too few other anchors",)
    y_N = classifier_inputs.classes_of(task, anchors)
    shares_C = np.bincount(y_N, minlength=task.num_classes) / len(y_N)
    baselines = {"most common class": choosing.Outcome.of(np.tile(shares_C, (len(y_N), 1)), y_N).score}
    texts, folds_N = np.array(baseline_methods.bare_texts(task, anchors), object), choosing.folds(y_N)
    p_NC = np.zeros((len(y_N), task.num_classes))
    try:
        for fold in np.unique(folds_N):
            out = folds_N == fold
            train = task.num_classes, texts[~out].tolist(), y_N[~out], texts[out].tolist()
            p_NC[out] = baseline_methods.predict_proba(methods.TfidfOptions(), *train)
        baselines["TF-IDF, logistic regression"] = choosing.Outcome.of(p_NC, y_N).score
    except ValueError:  # No text of the other folds has a word.
        pass
    return dataclasses.replace(tuning, warnings=warnings, baselines=baselines)


def _command(settings: commands.TuningSettings, model: str, rule: rules.Rule) -> str:
    """Return the command that fits a classifier to the same rows by this rule."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    flags = {"model": model, "task": settings.task_name, "store": "my_classifier", "seed": settings.seed or 0}
    flags |= {**rule.named, "demo_shots": rule.demo_shots}
    flags |= {name: getattr(settings, name) for name in _SHARED if getattr(settings, name) != defaults[name]}
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value) for name, value in flags.items()
    }
    return " ".join(["knnprompt fit", *(f"--{name}={shlex.quote(text)}" for name, text in texts.items())])
