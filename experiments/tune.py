"""Which rule, k, distance and number of demonstrations to take, from the train rows alone, beside baselines.

python experiments/tune.py
python experiments/tune.py --config.task=my_task.yaml --config.train_file=train.csv --config.demo_shots="(0, 1, 4)"
python experiments/tune.py --config.store=my_classifier --config.metric=accuracy --config.apply
"""

from knnprompt_jax import app
from knnprompt_jax.runs import tuning

_CONFIG = app.Config(__file__, "tune.py", tuning.TuningSettings)


def main() -> None:
    print(tuning.summarize(tuning.run(_CONFIG.value)))


if __name__ == "__main__":
    app.run(main)
