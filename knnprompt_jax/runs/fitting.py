"""Fit a classifier to a table or to a task's train rows and save it, or change a saved one."""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging
from jax.sharding import Mesh

from knnprompt_jax import errors, files, lm, options, parallel, states, tables
from knnprompt_jax.classifier import choosing, estimator, rules, saving, trials
from knnprompt_jax.classifier import options as classifier_options
from knnprompt_jax.models import sharding
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import changing, inputs, overview
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import centroids, distances
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import defects, splits
from knnprompt_jax.tasks.task import Example

KNN = "knn"
SEED = 1
QUERIES = 256  # Of the search that `summarize` describes.
_OF_CLASSIFIERS = (
    *("rule", "k", "distance", "weights", "penalty", "metric", "tie_break", "centroid"),
    *("approximate_recall", "truncation", "label_token"),
)
_CHANGES = ("append", "relabel", "remove_ids")
_OF_CHANGES = (
    *("store", *_CHANGES, "label_column", "encoding"),
    *("model", "revision", "dtype", "deterministic", "batch", "mesh", "distributed", "cache_gb"),
)


@dataclasses.dataclass(frozen=True)
class FitSettings(settings_lib.ReadingOptions, settings_lib.RowOptions):
    """A classifier to fit, or a change of a saved one. None means that an option is not given."""

    train_file: str = options.option("", "CSV, TSV, JSONL or Parquet file with a row for each text and its label.")
    store: str = options.option("", "Folder of the classifier.", needed=True)
    rule: str | None = options.option(
        None,
        "knn: the paper's classifier (KNNPrompting). probe, blend, votes: this rule, its other settings chosen by leave-one-out "
        "(AutoClassifier). By default the rule is chosen too.",
        choices=(KNN, *rules.RULES),
    )
    model: str = options.option(None, f"{settings_lib.MODEL_HELP} By default smollm2.", needed=True)
    task: str | None = options.option(None, f"{settings_lib.TASK_HELP} By default {settings_lib.OWN}.", needed=True)
    shots: int | None = options.option(None, "Train rows per class; by default all.", least=1, words={"all": 0})
    demo_shots: int | None = options.option(
        None,
        "Demonstrations per class among them; -1: as many as the context holds. By default -1 with --rule=knn; otherwise chosen "
        "among -1 (at most a quarter of the largest class), 2 and 0.",
        least=-1,
        words={classifier_options.AUTO: None},
    )
    seed: int | None = options.option(None, f"Seed of the draws of rows; by default {SEED}.", least=0)
    k: int | None = options.option(
        None, "Neighbours that vote; by default 3 with --rule=knn, otherwise chosen.", least=1
    )
    distance: str | None = options.option(
        None, "Distance; by default forward with --rule=knn, otherwise chosen.", choices=distances.DISTANCES
    )
    weights: str | None = options.option(
        None, "Weights of votes; by default uniform with --rule=knn, otherwise chosen.", choices=rules.WEIGHTS
    )
    penalty: float | None = options.option(None, "Ridge penalty of the probe; by default chosen.", least=1e-6)
    metric: str | None = options.option(
        None, f"Metric of the choice; by default {choosing.METRICS[0]}.", choices=choosing.METRICS
    )
    tie_break: str | None = options.option(
        None,
        "With --rule=knn: of equal votes, the lowest class index or the class of the nearest neighbour.",
        choices=classifier_options.TIE_BREAKS,
    )
    centroid: str | None = options.option(
        None, "With --rule=knn: one anchor per class, its mean, instead of all anchors.", choices=centroids.CENTROIDS
    )
    approximate_recall: float | None = options.option(
        None, "Recall that TPUs aim at in approximate search; 0: exact, the default.", least=0, most=1
    )
    truncation: str | None = options.option(  # type: ignore[assignment]
        None,
        "Prompts longer than the context: keep their last tokens (left, the default) or refuse them (error).",
        choices=("left", "error"),
    )
    label_token: str | None = options.option(  # type: ignore[assignment]
        None,
        "Token of a label word that stands for its class: last (the default) or first.",
        choices=layout.LABEL_TOKENS,
    )
    drop_duplicates: bool = options.option(False, "Leave out train rows that repeat or contradict each other.")
    overwrite: bool = options.option(False, "Replace another classifier, or a damaged one, in the folder.")
    append: str = options.option(
        "", "Change the saved classifier: add the rows of this file as anchors, new classes too."
    )
    relabel: str = options.option(
        "",
        "Change the saved classifier: give anchors the labels of this file: suggestions.csv of look, or id and label.",
    )
    remove_ids: tuple[int, ...] = options.option(
        (), "Change the saved classifier: remove the anchors of these ids, which are rows of the train file from 0."
    )
    distributed: settings_lib.DistributedOptions = options.group(settings_lib.DistributedOptions)
    datastore: store_lib.StoreOptions = options.group(store_lib.StoreOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in _CHANGES if getattr(self, name)]
        if given:
            for field in dataclasses.fields(self):
                name, default = field.name, store_lib.StoreOptions() if field.name == "datastore" else field.default
                if name not in _OF_CHANGES and getattr(self, name) != default:
                    raise errors.UserError(f"--{name}: has no effect with --{given[0]}; leave it out, or fit again")
        elif not self.train_file and self.task in (None, settings_lib.OWN):
            raise errors.UserError(
                "--train_file: give a table of rows, or a task that has rows (--task=trec), or a change of a saved classifier "
                "(--append, --relabel, --remove_ids)"
            )
        else:
            self.classifier()

    @property
    def is_change(self) -> bool:
        return any(getattr(self, name) for name in _CHANGES)

    def classifier(self, task: Any = None, demo_shots: int = 0) -> Any:
        """Return the unfitted classifier of these options, without a model; raise UserError on an option it does not have."""
        kind = estimator.KNNPrompting if self.rule == KNN else estimator.AutoClassifier
        names = saving.parameter_names(kind)
        given = {name: getattr(self, name) for name in _OF_CLASSIFIERS if getattr(self, name) is not None}
        if self.rule == KNN:
            del given["rule"]
        if unknown := [name for name in given if name not in names]:
            without = "with" if self.rule == KNN else "without"
            raise errors.UserError(f"--{unknown[0]}: has no effect {without} --rule={KNN}; leave it out")
        seed = SEED if self.seed is None else self.seed
        made = kind(None, task, demo_shots=demo_shots, random_state=seed, store_options=self.datastore, **given)  # type: ignore[arg-type]
        made.options_  # noqa: B018 (raises)
        return made


@dataclasses.dataclass(frozen=True)
class Result:
    """The saved classifier, what the model read for it, and remarks for the user."""

    classifier: estimator.KNNPrompting | estimator.AutoClassifier
    statistics: lm.PassStatistics
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Draft:
    """A draw of rows, the unfitted classifier, and what will be saved of both."""

    split: splits.FewShotSplit
    classifier: Any
    content: saving.Content

    def lay_out(self, model: inputs.Model, anchors: Sequence[Example]) -> layout.Prompts:
        task, truncation = self.content.task, self.classifier.truncation
        context = model.config.num_positions
        return layout.lay_out(task, self.split.demonstrations, anchors, model.tokenize, context, truncation)


def run(settings: FitSettings) -> Result:
    """Fit and save a classifier, or change the saved one. An interrupted run is resumed from the cache of states.

    An anchor's id is its row in the train file, from 0. Ids of appended rows follow the last row's.

    Raises:
      UserError: anything that cannot work, including another process that writes to the folder, which stays as it is.
    """
    folder = saving.absolute(pathlib.Path(settings.store))
    if settings.is_change:
        return Result(*changing.run(settings, folder))
    saving.check_outside(folder.parent)
    settings = inputs.resolved(settings)
    inputs.join(settings.distributed, settings.datastore)
    mesh = inputs.make_mesh(settings, [settings.model])
    model = inputs.load_model(settings.model, settings.revision)
    sharding.check(model.config, mesh)
    drafts = _drafts(settings, model)
    with saving.lock(folder):
        return _fit(settings, model, mesh, folder, drafts)


def _fit(
    settings: FitSettings, model: inputs.Model, mesh: Mesh, folder: pathlib.Path, drafts: Sequence[_Draft]
) -> Result:
    saved = _finished(settings, model, folder, drafts)
    if saved:
        language_model = inputs.load_weights(settings, model, mesh)
        return Result(estimator.restore(saved, language_model, settings.datastore), language_model.statistics)
    sampled = [trials.sample(draft.split.anchors, draft.classifier.random_state) for draft in drafts]
    prompts = [draft.lay_out(model, anchors) for draft, anchors in zip(drafts, sampled, strict=True)]
    _check_room(settings, model, folder, drafts[0])
    language_model = inputs.load_weights(settings, model, mesh)
    cache = states.user_cache(settings.cache_gb)
    for draft in drafts:
        draft.classifier.model = language_model
    chosen, choice, known = drafts[0], None, {}
    if len(drafts) > 1:
        shots = [draft.split.demo_shots for draft in drafts]
        titles = [f"{number} demonstrations per class" for number in shots]
        known = dict(zip(shots, states.read_each(language_model, prompts, cache, titles=titles), strict=True))
        pairs = [(draft.split.demonstrations, anchors) for draft, anchors in zip(drafts, sampled, strict=True)]
        draws = dict(zip(shots, pairs, strict=True))
        choice = chosen.classifier.choose(draws, known)
        chosen = drafts[shots.index(choice.rule.demo_shots)]
    split, of_anchors = chosen.split, known.get(chosen.split.demo_shots)
    if of_anchors is None or len(of_anchors) < len(split.anchors):
        of_anchors = states.read(language_model, chosen.lay_out(model, split.anchors), cache, title="anchors")
    classifier = chosen.classifier.fit_states(
        of_anchors, split.demonstrations, split.anchors, choice, chosen.content.num_rows
    )
    saving.save(classifier, folder, settings.overwrite)
    return Result(classifier, language_model.statistics)


def _drafts(settings: FitSettings, model: inputs.Model) -> list[_Draft]:
    """Draw the rows for each candidate number of demonstrations."""
    task, train = inputs.load_train(settings, settings.task or settings_lib.OWN, settings.train_file)
    rows = inputs.Rows(task, defects.remove(train, ()) if settings.drop_duplicates else train, ())
    _warn(train, rows.train)
    num_rows, shots = max(row.row for row in train) + 1, settings.shots or None
    seed = SEED if settings.seed is None else settings.seed
    if settings.demo_shots is not None or settings.rule == KNN:
        requested = -1 if settings.demo_shots is None else settings.demo_shots
        candidates = [inputs.demo_shots(requested, shots, rows, model)]
    else:
        if shots:
            # Draw the rows once and use all of them: the published draw takes other anchors for each number of demonstrations.
            drawn = splits.draw(rows.train, task, shots=shots, demo_shots=0, seed=seed)
            for warning in drawn.warnings:
                logging.warning(warning)
            rows, shots = dataclasses.replace(rows, train=drawn.anchors), None
        largest = max(collections.Counter(row.label for row in rows.train).values())
        most = 0 if largest < 2 else inputs.demo_shots(-1, None, rows, model)
        candidates = trials.candidate_shots(most, rows.train)
    drafts = []
    for demo_shots in candidates:
        split = splits.draw(rows.train, task, shots=shots, demo_shots=demo_shots, seed=seed)
        for warning in split.warnings:
            logging.warning(warning)
        classifier = settings.classifier(task, demo_shots)
        parameters = {name: getattr(classifier, name) for name in saving.parameter_names(type(classifier))}
        kept = (task.labels, num_rows, split.demonstrations, split.anchors)
        content = saving.Content(type(classifier).__name__, task, parameters, *kept)
        drafts.append(_Draft(split, classifier, content))
    k, most_anchors = drafts[0].classifier.options_.k, max(len(draft.split.anchors) for draft in drafts)
    least = k if isinstance(k, int) else 0
    if least > most_anchors:
        raise errors.UserError(f"--k={k}: there are {most_anchors} anchors; choose k ≤ {most_anchors}")
    return [draft for draft in drafts if len(draft.split.anchors) >= least]


def _warn(train: Sequence[Example], kept: Sequence[Example]) -> None:
    """Log defects of the rows."""
    if left_out := len(train) - len(kept):
        logging.warning("--drop_duplicates: %d of %d train rows are left out", left_out, len(train))
    elif found := defects.find(train, ()):
        counts = found.repeated, found.conflicting
        logging.warning(
            "%d train rows repeat a text, %d texts have conflicting labels (see --drop_duplicates)", *counts
        )
    if len({row.label for row in kept}) == 1:
        logging.warning("all train rows have the label %r: every prediction will be", kept[0].label)


def _finished(
    settings: FitSettings, model: inputs.Model, folder: pathlib.Path, drafts: Sequence[_Draft]
) -> saving.Saved | None:
    """Return the classifier in the folder if it is one of the drafts; raise UserError if another one must not be replaced."""
    if not saving.recovered(folder):
        return None
    try:
        saved = saving.read(folder)
        if any(saved.content.is_same(draft.content) for draft in drafts):
            identity = model.identity(settings.dtype, settings.deterministic)
            saved.check(identity, saved.content.task, saved.manifest.provenance.label_ids)
            return saved
        raise errors.UserError(
            f"{folder}: holds a classifier of other anchors or options; choose another folder, or --overwrite it"
        )
    except errors.UserError:
        if not settings.overwrite:
            raise
        return None


def _check_room(settings: FitSettings, model: inputs.Model, folder: pathlib.Path, draft: _Draft) -> None:
    """Raise UserError if the folder cannot be written, or the disk has no room for the anchors and their states."""
    config, distance = model.config, draft.classifier.distance_
    anchor_bytes = store_lib.anchor_bytes(settings.datastore, distance, config, draft.content.task.num_classes)
    num_bytes = len(draft.split.anchors) * (anchor_bytes + 4 * (config.state_width + 1))
    parallel.call_in_main(functools.partial(files.check_writable, folder, folder=True, num_bytes=num_bytes))


def summarize(result: Result) -> str:
    """Return what the binary prints: the class and its rule, a prompt, the anchors per class, the work and the store."""
    classifier, statistics = result.classifier, result.statistics
    task, store = classifier.task, classifier.store_
    described = store.describe(QUERIES, classifier.search_options(min(classifier.rule_.k, len(store))))
    counts = np.bincount(store.labels_N, minlength=task.num_classes).tolist()
    classes = [
        [label if word == label else f"{label} ({word})", f"{count:,}"]
        for label, word, count in zip(task.labels, task.label_words, counts, strict=True)
    ]
    work = "no prompt was read"
    if statistics.prompts:
        rate, compiling = statistics.prompts / max(1e-9, statistics.seconds), statistics.compile_seconds
        work = f"{statistics.prompts} prompts read, {rate:.1f} prompts/s ({compiling:.1f} s of compilation included)"
    template = "\n".join(f"    {line}" for line in task.template.splitlines())
    chosen = str(classifier.choice_) if classifier.choice_.candidates else ""
    return "\n".join(
        [
            f"{type(classifier).__name__}: {classifier.rule_.words}",
            f"task {task.name}, model {classifier.model.name}, seed {classifier.random_state}, "
            f"{len(classifier.demonstrations_)} demonstrations in every prompt",
            "",
            f"each row becomes this prompt, followed by {' or '.join(task.label_words)}:",
            "",
            template,
            "",
            tables.render(["class", "anchors"], [*classes, ["all", f"{len(store):,}"]]),
            "",
            work,
            *result.notes,
            overview.describe_datastore(described),
            *(["", chosen] if chosen else []),
        ]
    )
