"""The options of the commands on a person's own texts: fit, tune, predict, evaluate, look, explain."""

import dataclasses
import os
import pathlib
from typing import Any

from knnprompt_jax import errors, options, shipped
from knnprompt_jax.settings import classifiers, shared
from knnprompt_jax.settings.models import MODEL_HELP, DistributedOptions
from knnprompt_jax.settings.stores import StoreOptions

KNN = "knn"
SEED = 1
TUNED_SHOTS = (-1, 2, 0)
STANDARD = "-"  # Standard input or output.
INPUT_KINDS, OUTPUT_KINDS = ("csv", "tsv", "jsonl", "txt", "parquet"), ("jsonl", "csv")
IDS = "ids"
SUGGESTIONS = "suggestions.csv"
TEXT_HELP = "A JSON object of the fields if the classifier has several."
_CHANGES = ("append", "relabel", "remove_ids")
_OF_CHANGES = {
    *("store", *_CHANGES, "label_column", "encoding", "on_bad"),
    *("model", "dtype", "deterministic", "batch", "mesh", "distributed", "cache_gb"),
}
_WITH_TEXT = {"text", "store", "mesh_model", "output", "output_format", "probabilities", "abstain", "overwrite"}


def _declare_options() -> Any:
    """Return a class of the options of both classifiers, in which None means that an option is not given."""
    published, auto = (
        {field.name: field for field in dataclasses.fields(kind) if "help" in field.metadata}
        for kind in (classifiers.PublishedOptions, classifiers.AutoOptions)
    )
    flags = {}
    for name, field in {**published, **auto}.items():
        defaults = dict.fromkeys(str(declared[name].default) for declared in (auto, published) if name in declared)
        text = f"{field.metadata['help']} By default {f'; with --rule={KNN}: '.join(defaults)}."
        flags[name] = field.type, dataclasses.field(default=None, metadata={**field.metadata, "help": text})
    del flags["random_state"], flags["rule"]
    return options.subclass("ClassifierOptions", options.Options, flags, "The classifier and its prompts.")


_ClassifierOptions = _declare_options()


class FitSettings(_ClassifierOptions, shared.ReadingOptions, shared.RowOptions):  # type: ignore[misc, valid-type]
    """A classifier to fit, or a change to a saved one. None means that an option is not given."""

    train_file: str = options.option("", "CSV, TSV, JSONL or Parquet file with a row for each text and its label.")
    store: str = options.option("", "Folder of the classifier.", needed=True)
    rule: str | None = options.option(
        None,
        "knn: the paper's classifier (KNNPrompting). Otherwise AutoClassifier with probe (ridge regression on states), votes "
        "(of the nearest anchors) or blend (both); leave-one-out chooses the settings, and by default the rule too.",
        choices=(KNN, *classifiers.RULES),
    )
    model: str = options.option(None, f"{MODEL_HELP} By default {shipped.DEFAULT}.", needed=True)
    task: str | None = options.option(None, f"{shared.TASK_HELP} By default {shared.OWN}.", needed=True)
    shots: int | None = options.option(None, "Train rows per class; by default all.", least=1, words={"all": 0})
    demo_shots: int | None = options.option(
        None,
        "Demonstrations per class, drawn from these train rows; -1: as many as the context holds. By default -1 with "
        "--rule=knn; otherwise fit chooses 0, 2 or as many as the context holds (at most a quarter of the largest class).",
        least=-1,
        words={classifiers.AUTO: None},
    )
    seed: int | None = options.option(None, f"Seed for drawing rows; by default {SEED}.", least=0)
    drop_duplicates: bool = options.option(False, "Leave out train rows that repeat or contradict each other.")
    overwrite: bool = options.option(False, "Replace another classifier, or a damaged one, in the folder.")
    append: str = options.option(
        "", "Change the saved classifier: add the rows of this file as anchors, new classes too."
    )
    relabel: str = options.option(
        "",
        "Change the saved classifier: replace anchors' labels with those in this file (look's suggestions.csv, or columns id and "
        "label; UTF-8 unless --encoding).",
    )
    remove_ids: tuple[int, ...] = options.option(
        (), "Change the saved classifier: remove these anchors; ids are row numbers of the train file, from 0."
    )
    distributed: DistributedOptions = options.group(DistributedOptions)
    datastore: StoreOptions = options.group(StoreOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_change:
            changes = ", ".join(f"--{name}" for name in _CHANGES if getattr(self, name))
            self.refuse((name for name in vars(self) if name not in _OF_CHANGES), f"with {changes}")
            if not self.append:
                self.refuse(("label_column", "on_bad"), f"with {changes}")
        elif not self.train_file and self.task in (None, shared.OWN):
            raise errors.UserError(
                "--train_file: give a table, or a task with rows (--task=demo), or change a saved classifier "
                "(--append, --relabel, --remove_ids)"
            )
        else:
            self.check_rows(self.task or shared.OWN, self.train_file)
            self.classifier_options()

    @property
    def is_change(self) -> bool:
        return any(getattr(self, name) for name in _CHANGES)

    def classifier_options(self) -> dict[str, Any]:
        """Return the given options of the classifier; raise UserError on one that it does not have."""
        kind: type = classifiers.PublishedOptions if self.rule == KNN else classifiers.AutoOptions
        names, known = ({field.name for field in dataclasses.fields(each)} for each in (_ClassifierOptions, kind))
        self.refuse(sorted(names - known), f"{'with' if self.rule == KNN else 'without'} --rule={KNN}")
        given = {name: getattr(self, name) for name in names & known if getattr(self, name) is not None}
        if self.rule not in (None, KNN):
            given["rule"] = self.rule
        given |= {"random_state": SEED if self.seed is None else self.seed, "store_options": self.datastore}
        checked = kind(**given)
        if isinstance(checked, classifiers.RuleOptions):
            checked.refuse_unused()
        return given


class TuningSettings(shared.TaskOptions, shared.ReadingOptions, shared.RowOptions):
    """The candidates, and the rows that they are compared on."""

    store: str = options.option(
        "", "Folder of a saved classifier, whose anchors and demonstrations are used; its model does not run."
    )
    apply: bool = options.option(False, "Save the best candidate in --store.")
    metric: str | None = options.option(
        None,
        f"Metric that candidates are compared by; by default that of the saved classifier, or {classifiers.METRICS[0]}.",
        choices=classifiers.METRICS,
    )
    demo_shots: tuple[int, ...] | None = options.option(
        None,
        "Demonstrations per class to try; each number costs a pass over all rows. -1: as many as the context holds. By default "
        f"{','.join(map(str, TUNED_SHOTS))}.",
        least=-1,
        needed=True,
    )
    k: tuple[int, ...] = options.option(classifiers.TUNED_KS, "Numbers of neighbours to try.", least=1, needed=True)
    seed: int | None = options.option(None, "Seed of the draw of demonstrations; by default 0.", least=0)
    task: str | None = options.option(
        None, f"{shared.TASK_HELP} By default {shared.OWN} with train_file, otherwise demo.", needed=True
    )  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.apply and not self.store:
            raise errors.UserError("--apply: name the folder of a saved classifier with --store")
        if self.store:
            rows = (*(field.name for field in dataclasses.fields(shared.RowOptions)), "truncation", "label_token")
            self.refuse(
                ("task", "train_file", "demo_shots", "seed", *rows),
                "with --store, whose rows and prompts are made already",
            )
        else:
            self.check_rows(self.task_name, self.train_file)

    @property
    def task_name(self) -> str:
        return self.task or (shared.OWN if self.train_file else "demo")


class PredictionSettings(shared.FileOptions, shared.SavedOptions):
    """The rows to label, and the output."""

    input: str = options.option("", "File of rows, or - for standard input.")
    output: str = options.option(STANDARD, "File to write, or - for standard output.", needed=True)
    text: str = options.option("", f"Label this text instead of a file. {TEXT_HELP}")
    format: str = options.option("", f"Format of the input: {', '.join(INPUT_KINDS)}; by default its name's ending.")
    output_format: str | None = options.option(
        None, "Format of the output; by default its name's ending.", choices=OUTPUT_KINDS
    )
    probabilities: bool = options.option(False, "Write the probability of every class too.")
    abstain: float = options.option(
        0.0, "Leave the label empty if its probability is below this; 0: never.", least=0, most=1
    )
    keep: str = options.option(
        IDS,
        "Columns to copy: ids (those named like id or ticket_id), all, none, or names joined by commas.",
        needed=True,
    )
    overwrite: bool = options.option(False, "Replace an existing output once the new one is complete.")
    characters: int = options.option(0, "Characters of text per batch; 0: chosen for the model.", least=0)
    distributed: DistributedOptions = options.group(DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.input) == bool(self.text):
            raise errors.UserError("--input, --text: give a file of rows or one text")
        if self.text:
            self.refuse((name for name in vars(self) if name not in _WITH_TEXT), "with --text")
        if self.input != STANDARD and os.path.realpath(self.output) == os.path.realpath(self.input):
            raise errors.UserError(f"--output={self.output}: it is the input, which would be lost")
        if self.kind not in OUTPUT_KINDS:
            formats = " or ".join(OUTPUT_KINDS)
            raise errors.UserError(
                f"--output={self.output}: the format is not {formats}; name it with --output_format="
            )

    @property
    def kind(self) -> str:
        """The format of the output."""
        own = "jsonl" if self.output == STANDARD else pathlib.Path(self.output).suffix[1:]
        return self.output_format or own


class EvaluationSettings(shared.LabelledFileOptions, shared.CacheOptions, shared.SavedOptions):
    """The classifier, and the rows that it is measured on."""

    input: str = options.option("", "CSV, TSV, JSONL or Parquet file of rows with their labels.", needed=True)
    output: str = options.option("evaluation", "Folder of index.html, measures.json and measures.csv.", needed=True)


class LookSettings(shared.SavedOptions):
    """The saved classifier, and the folder of its page."""

    output: str = options.option("look", f"Folder to write index.html and {SUGGESTIONS} to.", needed=True)


class ExplanationSettings(shared.SavedOptions):
    """The classifier and the text."""

    text: str = options.option("", f"The text to explain. {TEXT_HELP}", needed=True)
