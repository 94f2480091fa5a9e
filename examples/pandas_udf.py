"""Label pandas tables with a saved classifier, by a function for Spark's `mapInPandas`.

python examples/pandas_udf.py my_classifier rows.csv labels.csv    # the same function without Spark

With Spark (every executor needs this package, this file and the model):

    label = functools.partial(pandas_udf.label, pickle.dumps(kp.load("my_classifier")))
    schema = "id string, text string, label string, probability double"
    spark.read.csv("rows.csv", header=True).mapInPandas(label, schema)
"""

import functools
import pickle
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

import knnprompt_jax as kp


def label(pickled: bytes, tables: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield each table with the label and probability of every row."""
    classifier = _unpickled(pickled)
    for table in tables:
        answer = classifier.answer(table)
        yield table.assign(label=answer.labels, probability=answer.probabilities.max(-1))


@functools.cache  # A Python process of Spark serves many partitions but loads the model once.
def _unpickled(pickled: bytes) -> Any:
    return pickle.loads(pickled)


if __name__ == "__main__":
    path, source, output = sys.argv[1:]
    with pd.read_csv(source, dtype=str, chunksize=256) as tables:
        labelled = label(pickle.dumps(kp.load(path)), tables)
        for number, table in enumerate(labelled):
            table.to_csv(output, mode="a" if number else "w", header=not number, index=False)
