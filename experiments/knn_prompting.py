"""Compares kNN Prompting with in-context learning on the same demonstrations: a table, and a JSON record per run.

python experiments/knn_prompting.py
python experiments/knn_prompting.py --model=gpt2-xl --task=trec --data_dir=data --shots=1024
python experiments/knn_prompting.py --options.knn.k=5 --options.knn.distance=released
"""

import dataclasses

from knnprompt_jax import app, options, parallel
from knnprompt_jax.runs import comparison, overview, settings


@dataclasses.dataclass(frozen=True)
class MainSettings(settings.JobSettings):
    """The options of a comparison, with two methods by default."""

    methods: str = options.option(
        "icl,knn", "Names separated by commas (docs/methods.md lists them), or all that apply."
    )


FLAGS = app.Flags(MainSettings)


def main() -> None:
    records = comparison.run(FLAGS.value)
    if parallel.is_main():
        app.show(overview.describe_comparison(records))
        app.show(f"records: {FLAGS.value.output}/")


if __name__ == "__main__":
    app.run(main, FLAGS)
