"""Label a table with a saved classifier on Ray Data.

python examples/ray_predict.py my_classifier rows.csv labels    # writes the folder labels/ of CSV files

Each worker loads the model once. Ray redoes the batches of a lost worker.
"""

import sys
from typing import Any

import pandas as pd
import pyarrow as pa
import ray
from pyarrow import csv

import knnprompt_jax as kp
from knnprompt_jax.commands import predictions_file


class Worker:
    """A process with a copy of the classifier."""

    def __init__(self, classifier: Any):
        self.classifier = classifier  # Ray's pickle holds the model's name and fingerprint, and no weights.

    def __call__(self, table: pd.DataFrame) -> pd.DataFrame:
        answer = self.classifier.answer(table)
        names = predictions_file.renamed(tuple(table.columns), ("label", "probability"))
        return table.set_axis(names, axis=1).assign(label=answer.labels, probability=answer.probabilities.max(-1))


def label(rows: ray.data.Dataset, classifier: Any, worker: type = Worker, **options: Any) -> ray.data.Dataset:
    """Return the rows with labels and probabilities; `options` are passed to `map_batches`, for example num_gpus=1."""
    # Two workers reserve half a CPU each, so that Ray can read the table even on a machine with two CPUs.
    options = {"compute": ray.data.ActorPoolStrategy(size=2), "num_cpus": 0.5, "batch_size": 256, **options}
    return rows.map_batches(worker, batch_format="pandas", fn_constructor_args=(classifier,), **options)


def read_csv(path: str) -> ray.data.Dataset:
    """Return the rows of a CSV file with every cell as a text: Arrow would read the id 007 as 7."""
    names = csv.open_csv(path).schema.names
    cells = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return ray.data.read_csv(path, convert_options=cells, parse_options=csv.ParseOptions(newlines_in_values=True))


if __name__ == "__main__":
    path, table, output = sys.argv[1:]
    label(read_csv(table), kp.load(path)).write_csv(output)
