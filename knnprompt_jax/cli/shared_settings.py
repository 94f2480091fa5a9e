"""The options of models, rows, draws and runs that several commands share. `study.job_inputs` reads them.

A default of None means "not given". `study.job_inputs` fills in the model, dtype and deterministic mode.
"""

import re

from knnprompt_jax.common import errors, options
from knnprompt_jax.inference.prompts import PromptOptions
from knnprompt_jax.models import DTYPES, hub
from knnprompt_jax.tasks import catalogue, splits, table_file
from knnprompt_jax.tasks.table_file import Table

MODEL_HELP = f"{', '.join(hub.SHIPPED)}, a Hub name (gpt2-xl, owner/name@revision, owner/name:file.gguf), a folder or a .gguf file."
TASK_HELP = f"{', '.join(catalogue.names())}; a file (my_task.yaml); or {catalogue.OWN}: the columns of train_file."
SPLIT = "dev_subsample"
SEEDS = (1, 2, 3, 4, 5)
SHOTS = 32


def check_model_axis(size: int, deterministic: bool | None) -> None:
    """Raise UserError if the size is left to the devices, but a deterministic model's digits depend on it."""
    if deterministic and not size:
        raise errors.UserError("--mesh.model=0: --deterministic needs a number, because it changes the last digits")


class MeshOptions(options.Options):
    """The layout of a job's devices."""

    data: int = options.option(0, "Devices that rows of prompts are split over; 0: all devices / mesh.model.", least=0)
    model: int = options.option(1, "Devices per copy of the weights; 0: the fewest with enough memory.", least=0)


class DistributedOptions(options.Options):
    """The processes of a run on several hosts."""

    auto: bool = options.option(False, "Get the processes from Slurm, Open MPI or the TPU environment.")
    address: str = options.option("", "host:port of process 0, if distributed.auto is off.")
    num_processes: int = options.option(0, "Number of processes; needs address.", least=0)
    process_id: int = options.option(0, "Index of this process, from 0; needs address.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_given = self.address or self.num_processes or self.process_id
        port = re.fullmatch(r".+:([1-9]\d{0,4})", self.address)
        is_valid = port and int(port[1]) < 2**16 and self.process_id < self.num_processes
        if is_given and (self.auto or not is_valid):
            given = ", ".join(f"{name}={value}" for name, value in self.to_dict().items())
            advice = "give process 0 as host:port (1 to 65535), and process_id < num_processes, or only auto"
            raise errors.UserError(f"{given}: {advice}")


class ModelOptions(options.Options):
    """The dtype and devices of a language model. A dtype that is not given is float32, or a saved classifier's."""

    dtype: str | None = options.option(None, "float32 (default), or bfloat16 for accelerators.", choices=DTYPES)
    batch: int = options.option(0, "Packed tokens per step in each data shard; 0: by the device.", least=0)
    mesh: MeshOptions = options.group(MeshOptions)


class SavedMesh(options.Options):
    """The layout of the devices."""

    model: int = options.option(1, "Devices per copy of the weights; 0: the fewest with enough memory.", least=0)


class SavedOptions(options.Options):
    """A saved classifier, and the mesh of its model."""

    classifier: str = options.option("", "File of a classifier, which fit wrote.", nonempty=True)
    mesh: SavedMesh = options.group(SavedMesh)


class CacheOptions(options.Options):
    """The cache of states."""

    cache_gb: float = options.option(2.0, "GiB of prompt states kept in the user's cache folder; 0: none.", least=0)


class PassOptions(CacheOptions, PromptOptions, ModelOptions):
    """Reproducibility, and the cache of states."""

    deterministic: bool | None = options.option(
        None, "Compute bitwise identical states and distances, whatever else is read (docs/reliability.md); slower."
    )
    distributed: DistributedOptions = options.group(DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model_axis(self.mesh.model, self.deterministic)


class NameOptions(options.Options):
    """The name of the model."""

    model: str | None = options.option(None, f"{MODEL_HELP} By default {hub.DEFAULT}.", nonempty=True)


class DrawOptions(NameOptions):
    """The model, the task and the numbers of train rows drawn."""

    task: str = options.option("demo", TASK_HELP, nonempty=True)
    train_file: str = options.option("", "CSV, TSV, JSONL or Parquet file of train rows; replaces the task's own.")

    shots: int | None = options.option(
        None, f"Train rows per class, or all; by default {SHOTS}.", least=1, words={"all": splits.ALL_ROWS}
    )
    demo_shots: int = options.option(
        -1, "Demonstrations per class; -1: as many as the context holds (M_T), or 2 in long contexts.", least=-1
    )


class FileOptions(options.Options):
    """The format of files of rows, and the treatment of bad rows."""

    encoding: str = options.option("utf-8", "Encoding of text files without a byte order mark.", nonempty=True)
    delimiter: str | None = options.option(
        None, "Separator of CSV and TSV cells; by default what splits the header.", choices=tuple(table_file.DELIMITERS)
    )
    on_bad: str = options.option(table_file.STOP, "At rows without a text or a label.", choices=table_file.ON_BAD)

    def table(self, path: str, label_column: str = table_file.LABEL) -> Table:
        """Return a file of rows with these options; labels are in `label_column` unless an option names the column."""
        return Table(
            path,
            label_column=getattr(self, "label_column", None) or label_column,
            text_columns=getattr(self, "text_columns", ()),  # Not every command has all of them.
            on_bad=self.on_bad,
            encoding=self.encoding,
            delimiter=self.delimiter or "",
            kind=getattr(self, "format", None) or "",
        )


class LabelledFileOptions(FileOptions):
    """The columns of files of labelled rows."""

    label_column: str | None = options.option(
        None, "Label column; by default label, or that of the classifier in use.", nonempty=True, verbatim=True
    )


class ColumnOptions(options.Options):
    """The columns of a saved classifier's texts."""

    text_columns: tuple[str, ...] = options.option(
        (), "Columns of the texts, in the order that fit printed; by default with the same names.", verbatim=True
    )


class RowOptions(LabelledFileOptions):
    """The source of a task's rows."""

    data_dir: str = options.option("", "Rows at <data_dir>/<task>/{train,dev_subsample,test}.jsonl.")
    text_columns: tuple[str, ...] = options.option(
        (), f"Text columns, for task {catalogue.OWN}; by default all except ids, numbers and dates.", verbatim=True
    )
    hub: bool = options.option(False, "Load rows from the Hugging Face Hub instead of data_dir.")

    def check_rows(self, task: str, has_file: bool = False, has_other_file: bool = False) -> None:
        """Raise UserError if there is no such task, or on an option without effect on its rows."""
        if task == catalogue.OWN and not has_file:
            raise errors.UserError("--train_file: give a table, or a task with rows (--task=demo)")
        if task != catalogue.OWN:
            catalogue.get(task)  # Raises UserError.
            self.refuse(("text_columns",), f"with --task={task}, which names its fields")
        if has_file:
            self.refuse(("data_dir", "hub"), "with --train_file, which has the rows")
        elif not has_other_file:
            self.refuse(("encoding", "delimiter"), "on rows of --data_dir, --hub or the demo")
        if self.hub:
            self.refuse(("data_dir", "label_column"), "with --hub, whose columns and labels the task names")


class EvaluationOptions(RowOptions):
    """The rows to classify, and the treatment of duplicates."""

    split: str | None = options.option(None, f"The split to classify; by default {SPLIT}.", nonempty=True)
    drop_duplicates: bool = options.option(
        False, "Leave out train rows that repeat or contradict another, or that are among the rows to classify."
    )

    def check_files(self, train_file: str, eval_file: str) -> None:
        """Raise UserError if one of two files is missing, or on an option without effect on files."""
        if bool(train_file) != bool(eval_file):
            raise errors.UserError("--train_file and --eval_file go together: give both files or neither")
        if eval_file:
            self.refuse(("split",), "with --eval_file")
