"""kNN Prompting beside in-context learning with the same demonstrations: a table, and a JSON record a run.

python experiments/knn_prompting.py
python experiments/knn_prompting.py --config.model=gpt2-xl --config.task=trec --config.data_dir=data --config.shots=1024
"""

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import main_job, settings

_CONFIG = app.config_flag(__file__, "knn_prompting.py")


def main() -> None:
    run = settings.from_config(settings.RunSettings, _CONFIG.value)
    records = main_job.run(run)
    if parallel.is_main():
        print(main_job.summarize(records))
        print(f"records: {run.output}/")


if __name__ == "__main__":
    app.run(main)
