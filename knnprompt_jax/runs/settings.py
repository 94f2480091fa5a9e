"""What jobs are told: options declared once, frozen and checked at the border."""

import dataclasses

from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier.options import KNNOptions, PromptOptions, RuleOptions
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import shipped
from knnprompt_jax.store.store import StoreOptions
from knnprompt_jax.tasks import catalogue

MODEL_HELP = f"{', '.join(shipped.SHIPPED)}, a Hub name (gpt2-xl, owner/name:file.gguf), a folder or a .gguf file."
OWN = "own"
TASK_HELP = f"{', '.join(catalogue.names())}; a file that declares a task: my_task.yaml; or {OWN}: by the columns of train_file."


@dataclasses.dataclass(frozen=True)
class MeshOptions(options_lib.Options):
    """How a job's devices are laid out."""

    data: int = options_lib.option(0, "Devices over which rows of prompts are split; 0: all / mesh.model.", least=0)
    model: int = options_lib.option(
        1, "Devices over which each copy of the weights is split; 0: the fewest on which they fit with a pass.", least=0
    )


@dataclasses.dataclass(frozen=True)
class DistributedOptions(options_lib.Options):
    """How the processes of a run on several hosts find each other."""

    auto: bool = options_lib.option(
        False, "Several processes that Slurm, Open MPI or the TPU's own records know; otherwise give an address."
    )
    address: str = options_lib.option("", "host:port of process 0, where nothing knows the processes.")
    num_processes: int = options_lib.option(0, "How many processes there are, with an address.", least=0)
    process_id: int = options_lib.option(0, "Which of them this is, from 0, with an address.", least=0)


@dataclasses.dataclass(frozen=True)
class ComputeOptions(options_lib.Options):
    """How a language model runs, whichever it is."""

    dtype: str = options_lib.option(
        "float32",
        "float32 is the reference, bfloat16 for accelerators; int8: kernels in 8 bits, the rest in bfloat16.",
        choices=config_lib.DTYPES,
        decisive=True,
    )
    batch: int = options_lib.option(
        0, "Packed tokens that go through the model at a time in each data shard; 0: what suits the device.", least=0
    )
    mesh: MeshOptions = options_lib.group(MeshOptions)


@dataclasses.dataclass(frozen=True)
class ModelOptions(ComputeOptions):
    """How a language model is loaded and run."""

    revision: str = options_lib.option("", "Branch, tag or commit of the model on the Hub.", decisive=True)


@dataclasses.dataclass(frozen=True)
class SavedOptions(options_lib.Options):
    """Which saved classifier answers, and how its model is laid out."""

    store: str = options_lib.option("", "Folder of a saved classifier.", needed=True)
    mesh_model: int = options_lib.option(1, "Devices that the weights are split over.", least=1)


@dataclasses.dataclass(frozen=True)
class ReadingOptions(PromptOptions, ModelOptions):
    """How a language model reads prompts."""

    deterministic: bool = options_lib.option(
        False,
        "State and distances of a text are the same to the bit whatever is read beside it, on any number of data shards; batch does not "
        "count then, and more tokens are read (docs/reliability.md).",
        decisive=True,
    )


@dataclasses.dataclass(frozen=True)
class TaskOptions(options_lib.Options):
    """Which model answers which task after which train rows."""

    model: str = options_lib.option(shipped.DEFAULT, MODEL_HELP, needed=True)
    task: str = options_lib.option("demo", TASK_HELP, needed=True)
    train_file: str = options_lib.option(
        "", "Train rows from a CSV, TSV, JSONL or Parquet file instead.", decisive=True
    )


@dataclasses.dataclass(frozen=True)
class DrawOptions(TaskOptions):
    """Options of the task, and how many of its rows are drawn."""

    shots: int = options_lib.option(32, "Train rows per class, or all.", least=1, words={"all": 0})
    demo_shots: int = options_lib.option(
        -1, "Demonstrations per class among them; -1: as many as the context holds (M_T), or 2 in long ones.", least=-1
    )


@dataclasses.dataclass(frozen=True)
class FileOptions(options_lib.Options):
    """How files of rows are read."""

    encoding: str = options_lib.option("utf-8", "Encoding of files of rows.", needed=True)


@dataclasses.dataclass(frozen=True)
class LabelledFileOptions(FileOptions):
    """How files of labelled rows are read."""

    label_column: str = options_lib.option("label", "What files of rows call the column of the labels.", needed=True)


@dataclasses.dataclass(frozen=True)
class RowOptions(LabelledFileOptions):
    """Where a task's rows come from, whichever task it is."""

    data_dir: str = options_lib.option("", "Rows at <data_dir>/<task>/{train,dev_subsample,test}.jsonl.")
    text_columns: tuple[str, ...] = options_lib.option(
        (), f"The columns of texts, for task {OWN}; by default all that hold texts, but for ids, numbers and dates."
    )
    hub: bool = options_lib.option(False, "Rows from the Hugging Face Hub instead.", decisive=True)
    restore_dropped: bool = options_lib.option(
        False,
        "Put the rows of train_dropped.jsonl back: the train file as published.",
        decisive=True,
    )


@dataclasses.dataclass(frozen=True)
class BuildSettings(DrawOptions, ReadingOptions, RowOptions):
    """Building a saved classifier from a task's train rows, or changing a saved one."""

    store: str = options_lib.option("", "Folder of the classifier; its parent exists or is made.", needed=True)
    overwrite: bool = options_lib.option(False, "Replace another classifier, or a damaged one, in that folder.")
    chunk: int = options_lib.option(1024, "Save what is finished after every so many anchors.", least=1)
    append: str = options_lib.option(
        "", "Change the saved classifier, whose model it keeps: append the rows of this file, new classes too."
    )
    relabel: str = options_lib.option(
        "",
        "Change the saved classifier: give anchors the labels of this file, as suggestions.csv of look.py or with id and label.",
    )
    remove_ids: tuple[int, ...] = options_lib.option(
        (), "Change the saved classifier: remove the anchors of these ids, rows of the train file from 0."
    )
    drop_duplicates: bool = options_lib.option(False, "Leave out train rows that repeat or contradict each other.")
    seed: int = options_lib.option(1, "Seed of the draw of train rows.", least=0)
    distributed: DistributedOptions = options_lib.group(DistributedOptions)
    datastore: StoreOptions = options_lib.group(StoreOptions)
    knn: KNNOptions | RuleOptions = options_lib.group(KNNOptions)

    @property
    def changes(self) -> bool:
        """Whether a saved classifier is to be changed."""
        return bool(self.append or self.relabel or self.remove_ids)
