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
from knnprompt_jax.commands import predictions_file
from knnprompt_jax.common import text_tables
from knnprompt_jax.tasks.columns import is_empty
from knnprompt_jax.tasks.table_file import Table


def label(pickled: bytes, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield each table with the label and probability of every row.

    Columns of the input with these names become `input_label` and `input_probability`.
    """
    classifier = _unpickled(pickled)
    for table in frames:
        answer = classifier.answer(table)
        names = predictions_file.renamed(tuple(table.columns), ("label", "probability"))
        yield table.set_axis(names, axis=1).assign(label=answer.labels, probability=answer.probabilities.max(-1))


@functools.cache  # A Python process of Spark serves many partitions but loads the model once.
def _unpickled(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def main(path: str, source: str, output: str) -> None:
    """Label a file of rows, 256 at a time, with a saved classifier; write a CSV file."""
    # pandas would read the id 007 as 7, and the texts "NA" and "None" as missing.
    rows = (row for _, row in Table(source).rows())
    batches = iter(lambda: list(itertools.islice(rows, 256)), [])
    # As objects, a column of whole numbers with an empty cell does not become one of floats.
    frames = (pd.DataFrame(batch, dtype=object) for batch in batches)
    columns: list[str] = []
    with pathlib.Path(output).open("wb") as file:
        for table in label(pickle.dumps(kp.load(path)), frames):
            if not columns:
                columns = list(table.columns)
                file.write(text_tables.to_csv([columns]))
            elif other := sorted({*table.columns} - {*columns}):
                raise kp.UserError(f"{source}: the column {other[0]!r} begins after the first 256 rows")
            values = table.reindex(columns=columns).values.tolist()
            file.write(text_tables.to_csv(([_cell(value) for value in row] for row in values), is_first=False))


def _cell(value: Any) -> str:
    """Return a value as the text of a cell."""
    return "" if is_empty(value) and not isinstance(value, str) else str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
