"""Label pandas tables with a saved classifier, by a function for Spark's `mapInPandas`.

python examples/pandas_udf.py my_classifier rows.csv labels.csv    # the same function without Spark

With Spark (every executor needs this package, this file and the model):

    label = functools.partial(pandas_udf.label, pickle.dumps(kp.load("my_classifier")))
    schema = "id string, text string, label string, probability double"
    spark.read.csv("rows.csv", header=True).mapInPandas(label, schema)
"""

import functools
import itertools
import pathlib
import pickle
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

import knnprompt_jax as kp
from knnprompt_jax.prediction import writing
from knnprompt_jax.tasks import formats


def label(pickled: bytes, tables: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield each table with the label and probability of every row.

    Columns of the input with these names become `input_label` and `input_probability`.
    """
    classifier = _unpickled(pickled)
    for table in tables:
        answer = classifier.answer(table)
        names = writing.renamed(tuple(table.columns), ("label", "probability"))
        yield table.set_axis(names, axis=1).assign(label=answer.labels, probability=answer.probabilities.max(-1))


@functools.cache  # A Python process of Spark serves many partitions but loads the model once.
def _unpickled(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def main(path: str, source: str, output: str) -> None:
    """Label a file of rows, 256 at a time, with a saved classifier; write a CSV file."""
    # pandas would read the id 007 as 7, and the texts "NA" and "None" as missing.
    rows = (row for _, row in formats.read(pathlib.Path(source)))
    tables = map(pd.DataFrame, iter(lambda: list(itertools.islice(rows, 256)), []))
    for number, table in enumerate(label(pickle.dumps(kp.load(path)), tables)):
        table.to_csv(output, mode="a" if number else "w", header=not number, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
