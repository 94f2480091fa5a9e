"""Compares rules, k, distances, numbers of demonstrations and baselines on the train rows alone.

python experiments/tune.py
python experiments/tune.py --task=my_task.yaml --train_file=train.csv --demo_shots=0,1,4
python experiments/tune.py --store=my_classifier --metric=accuracy --apply    # a saved classifier; the model does not run

Each train row that is not a demonstration is classified by all others.
"""

from knnprompt_jax import app
from knnprompt_jax.settings import commands

FLAGS = app.Flags(commands.TuningSettings)


def main() -> None:
    from knnprompt_jax.runs import tuning

    app.show(tuning.summarize(tuning.run(FLAGS.value)))


if __name__ == "__main__":
    FLAGS.run(main)
