"""Shows the anchors of a saved classifier: probably wrong labels, rows to label next, a map, confusion and calibration.

python experiments/look.py --classifier=my_classifier --output=look
python experiments/look.py --classifier=my_classifier --input=unlabelled.csv --budget=50
python experiments/fit.py --train_file=train.csv --classifier=my_classifier --overwrite --corrections=suggestions.csv
"""

from knnprompt_jax import app
from knnprompt_jax.settings import commands

FLAGS = app.Flags(commands.LookSettings)


def main() -> None:
    from knnprompt_jax.report import look

    app.show(look.run(FLAGS.value))


if __name__ == "__main__":
    FLAGS.run(main)
