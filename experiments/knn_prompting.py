"""Compares kNN Prompting with in-context learning on the same demonstrations: a table, and a JSON record per run.

python experiments/knn_prompting.py
python experiments/knn_prompting.py --model=gpt2-xl --task=trec --data_dir=data --shots=1024
python experiments/knn_prompting.py --options.knn.k=5 --options.knn.distance=reverse_kl
"""

from knnprompt_jax import app
from knnprompt_jax.settings import shared

FLAGS = app.Flags(shared.MainSettings)


def main() -> None:
    from knnprompt_jax import parallel
    from knnprompt_jax.runs import comparison

    records = comparison.run(FLAGS.value)
    if parallel.is_main():
        app.show(comparison.describe_comparison(records))
        app.show(f"records: {FLAGS.value.output}/")


if __name__ == "__main__":
    app.run(main, FLAGS)
