"""kNN Prompting beside in-context learning with the same demonstrations: a table, and a JSON record per run.

python experiments/knn_prompting.py
python experiments/knn_prompting.py --config.model=gpt2-xl --config.task=trec --config.data_dir=data --config.shots=1024
"""

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import comparison, overview, settings

_CONFIG = app.Config(__file__, "knn_prompting.py", settings.JobSettings)


def main() -> None:
    records = comparison.run(_CONFIG.value)
    if parallel.is_main():
        print(overview.describe_comparison(records))
        print(f"records: {_CONFIG.value.output}/")


if __name__ == "__main__":
    app.run(main)
