"""Shows the anchors of a saved classifier: probably wrong labels, a map, confusion and calibration.

python experiments/look.py --store=my_classifier --output=look
knnprompt fit --store=my_classifier --relabel=look/suggestions.csv    # after you checked the table
"""

from knnprompt_jax import app
from knnprompt_jax.settings import commands

FLAGS = app.Flags(commands.LookSettings)


def main() -> None:
    from knnprompt_jax.report import look

    app.show(look.run(FLAGS.value))


if __name__ == "__main__":
    FLAGS.run(main)
