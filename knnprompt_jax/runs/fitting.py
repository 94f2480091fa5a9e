"""Fit a classifier to a table or to a task's train rows and save it, or change a saved one."""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax import errors, files, lm, options, parallel, states, tables
from knnprompt_jax.classifier import estimator, rules, saving, trials
from knnprompt_jax.classifier import options as classifier_options
from knnprompt_jax.runs import changing, inputs, overview
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import defects, splits
from knnprompt_jax.tasks.task import Example, Task, listed

KNN = "knn"
SEED = 1
QUERIES = 256  # Of the search that `summarize` describes.
_REPEATED = 5  # Rows per distinct value from which the summary gives the number of a column's distinct values.
_CHANGES = ("append", "relabel", "remove_ids")
_OF_CHANGES = (
    *("store", *_CHANGES, "label_column", "encoding", "on_bad"),
    *("model", "revision", "dtype", "deterministic", "batch", "mesh", "distributed", "cache_gb"),
)


def _declare_options() -> Any:
    """Return a class of the options of both classifiers, in which None means that an option is not given."""
    declared: dict[str, dict[str, dataclasses.Field]] = collections.defaultdict(dict)
    kinds = {"with": classifier_options.PublishedOptions, "without": classifier_options.AutoOptions}
    for word, kind in kinds.items():
        for field in dataclasses.fields(kind):
            if "help" in field.metadata and field.name != "random_state":
                declared[field.name][f"{word} --rule={KNN}"] = field
    flags = []
    for name, by_rule in declared.items():
        field, defaults = [*by_rule.values()][-1], {rule: each.default for rule, each in by_rule.items()}
        is_common = len(by_rule) == 2 and len({*defaults.values()}) == 1
        default = str(field.default) if is_common else ", ".join(f"{value} {rule}" for rule, value in defaults.items())
        changes = {"help": f"{field.metadata['help']} By default {default}.", "is_optional": True}
        flags.append((name, field.type, dataclasses.field(default=None, metadata={**field.metadata, **changes})))
    return dataclasses.make_dataclass("ClassifierOptions", flags, bases=(options.Options,), frozen=True)


_ClassifierOptions = _declare_options()


@dataclasses.dataclass(frozen=True)
class FitSettings(_ClassifierOptions, settings_lib.ReadingOptions, settings_lib.RowOptions):  # type: ignore[misc, valid-type]
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

    def classifier(self, model: Any = None, task: Any = None, demo_shots: Any = 0) -> Any:
        """Return the unfitted classifier of these options; raise UserError on an option that it does not have."""
        kind = estimator.KNNPrompting if self.rule == KNN else estimator.AutoClassifier
        names = [field.name for field in dataclasses.fields(_ClassifierOptions)]
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.rule == KNN:
            del given["rule"]
        if unknown := [name for name in given if name not in kind.option_names()]:
            without = "with" if self.rule == KNN else "without"
            raise errors.UserError(f"--{unknown[0]}: has no effect {without} --rule={KNN}; leave it out")
        seed = SEED if self.seed is None else self.seed
        return kind(model, task, demo_shots=demo_shots, random_state=seed, store_options=self.datastore, **given)


@dataclasses.dataclass(frozen=True)
class Result:
    """The saved classifier, what the model read for it, and remarks for the user."""

    classifier: estimator.KNNPrompting | estimator.AutoClassifier
    statistics: lm.PassStatistics
    notes: tuple[str, ...] = ()


def run(settings: FitSettings) -> Result:
    """Fit and save a classifier, or change the saved one. An interrupted run is resumed from the cache of states.

    An anchor's id is its row in the train file, from 0. Ids of appended rows follow the last row's.

    Raises:
      UserError: anything that cannot work, including another process that writes to the folder, which stays as it is.
    """
    inputs.join(settings.distributed)
    folder = saving.absolute(pathlib.Path(settings.store))
    if settings.is_change:
        return Result(*changing.run(settings, folder))
    saving.check_outside(pathlib.Path(settings.store), may_replace=True)
    settings, mesh, model = inputs.begin(settings)
    classifier, draws, num_rows, note = _draw(settings, model)
    contents = [saving.Content.of(classifier, *draw, num_rows) for draw in draws.values()]
    with saving.lock(folder):
        saved = _finished(settings, model, folder, contents)
        if not saved:
            seed = classifier.random_state
            sampled = {shots: (shown, trials.sample(anchors, seed)) for shots, (shown, anchors) in draws.items()}
            prompts = [classifier.lay_out(anchors, shown) for shown, anchors in sampled.values()]
            _check_room(settings, model, folder, classifier, max(len(anchors) for _, anchors in draws.values()))
        classifier.model = inputs.load_weights(settings, model, mesh)
        if saved:
            classifier = estimator.restore(saved, classifier.model, settings.datastore)
        else:
            cache = classifier.states_cache = states.user_cache(settings.cache_gb) or classifier.states_cache
            layers, choice, shots = classifier.candidate_layers, None, next(iter(draws))
            if len(draws) > 1:
                titles = [f"{number} demonstrations per class" for number in draws]
                read = states.read_each(classifier.model, prompts, cache, titles, layers=layers)
                choice = classifier.choose(sampled, dict(zip(draws, read, strict=True)))
                shots = choice.rule.demo_shots
            demonstrations, anchors = draws[shots]
            of_all = classifier.lay_out(anchors, demonstrations)
            of_anchors = states.read(classifier.model, of_all, cache, title="anchors", layers=layers)
            classifier.fit_states(of_anchors, demonstrations, anchors, choice, num_rows)
            saving.save(classifier, folder, settings.overwrite)
    return Result(classifier, classifier.model.statistics, note)


def _draw(settings: FitSettings, model: inputs.Model) -> tuple[Any, dict[int, trials.Draw], int, tuple[str, ...]]:
    """Return the unfitted classifier, a draw for each candidate number of demonstrations, the number of train rows, and remarks."""
    task, train = inputs.load_train(settings, settings.task or settings_lib.OWN, settings.train_file)
    rows = inputs.Rows(task, defects.remove(train, ()) if settings.drop_duplicates else train, ())
    _warn(train, rows.train)
    shots, seed = settings.shots or None, SEED if settings.seed is None else settings.seed
    demo_shots: Any = classifier_options.AUTO
    if settings.demo_shots is not None or settings.rule == KNN:
        requested = -1 if settings.demo_shots is None else settings.demo_shots
        demo_shots = inputs.demo_shots(requested, shots, rows, model)
        candidates = [demo_shots]
    else:
        if shots:
            # Draw the rows once and use all of them: the published draw takes other anchors for each number of demonstrations.
            drawn = splits.draw(rows.train, task, shots=shots, demo_shots=0, seed=seed)
            _log(drawn.warnings)
            rows, shots = dataclasses.replace(rows, train=drawn.anchors), None
        largest = max(collections.Counter(row.label for row in rows.train).values())
        most = 0 if largest < 2 else inputs.demo_shots(-1, None, rows, model)
        candidates = trials.candidate_shots(most, rows.train)
    classifier, draws = settings.classifier(model, task, demo_shots), {}
    classifier.source_ = settings.source()
    for number in candidates:
        split = splits.draw(rows.train, task, shots=shots, demo_shots=number, seed=seed)
        _log(split.warnings)
        draws[number] = split.demonstrations, split.anchors
        shown = len(split.demonstrations)
        if settings.demo_shots and settings.demo_shots > 0 and shown < number * task.num_classes:
            logging.warning("--demo_shots=%d: at most half of a class become demonstrations, %d in all", number, shown)
    remarks = (_describe_columns(task, train),) if settings.task in (None, settings_lib.OWN) else ()
    return classifier, trials.possible(classifier, draws), max(row.row for row in train) + 1, remarks


def _describe_columns(task: Task, rows: Sequence[Example]) -> str:
    """Return which columns of a table are the prompt's fields, which of these have few distinct values, and which are left out."""
    used = []
    for field in task.fields:
        texts = [row.fields[field] for row in rows if row.fields[field]]
        count = len(set(texts))
        used.append(f"{field} (distinct values: {count})" if count * _REPEATED <= len(texts) else field)
    left_out = dict.fromkeys(column for row in rows for column in row.other)
    return f"columns in the prompt: {', '.join(used)}; left out: {listed(left_out)}; --text_columns= chooses others"


def _log(warnings: Iterable[str]) -> None:
    for warning in warnings:
        logging.warning(warning)


def _warn(train: Sequence[Example], kept: Sequence[Example]) -> None:
    """Log defects of the rows."""
    if left_out := len(train) - len(kept):
        logging.warning("--drop_duplicates: %d of %d train rows are left out", left_out, len(train))
    elif found := defects.describe(train, ()):
        logging.warning("%s (see --drop_duplicates)", found)
    _log(defects.of_labels(kept))


def _finished(
    settings: FitSettings, model: inputs.Model, folder: pathlib.Path, contents: Sequence[saving.Content]
) -> saving.Saved | None:
    """Return the classifier in the folder if it has one of the contents; raise UserError if it must not be replaced."""
    if not saving.recovered(folder):
        return None
    try:
        saved = saving.read(folder)
        if any(saved.content.is_same(content) for content in contents):
            saved.check(model.identity(settings.dtype, settings.deterministic))
            return saved
        raise errors.UserError(
            f"{folder}: holds a classifier of other anchors or options; choose another folder, or --overwrite it"
        )
    except errors.UserError:
        if not settings.overwrite:
            raise
        return None


def _check_room(
    settings: FitSettings, model: inputs.Model, folder: pathlib.Path, classifier: Any, num_anchors: int
) -> None:
    """Raise UserError if the folder cannot be written, or the disk has no room for the anchors and their states."""
    config = model.config
    anchor_bytes = store_lib.anchor_bytes(settings.datastore, classifier.distance_, config, classifier.task.num_classes)
    floats = config.state_width + 1 + config.width * len(classifier.candidate_layers)
    num_bytes = num_anchors * (anchor_bytes + 4 * floats)
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
