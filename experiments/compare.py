"""Compares methods on the same splits: prints one table, and writes a JSON record per run and method.

knnprompt compare    # kNN Prompting beside in-context learning, on the default model and task
knnprompt compare --methods=icl,knn,linear_probe --knn.k=5
knnprompt compare --methods=all    # all that apply, except those by name
knnprompt compare --model=gpt2-xl --task=trec --data_dir=data --shots=128

Each record is written when its run ends; --resume continues after an interruption.
`report --format=text` prints tables of the records of several commands.
"""

from knnprompt_jax.cli import app
from knnprompt_jax.cli import paper_settings as grids

FLAGS = app.Flags(grids.ComparisonSettings)


def main() -> None:
    from knnprompt_jax.common import parallel
    from knnprompt_jax.study import comparison

    records = comparison.run(FLAGS.value)
    if parallel.is_main():
        app.show(comparison.describe_comparison(records))
        app.show(f"records: {FLAGS.value.output}/")


if __name__ == "__main__":
    FLAGS.run(main)
