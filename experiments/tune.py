"""Which k, representation, direction and number of demonstrations to take, from the train rows alone.

python experiments/tune.py
python experiments/tune.py --config.task=my_task.yaml --config.train_file=train.csv --config.demo_shots="(0, 1, 4)"
"""

from knnprompt_jax import app
from knnprompt_jax.runs import settings, tuning_job

_CONFIG = app.config_flag(__file__, "tune.py")


def main() -> None:
    print(tuning_job.summarize(tuning_job.run(settings.from_config(tuning_job.TuningSettings, _CONFIG.value))))


if __name__ == "__main__":
    app.run(main)
