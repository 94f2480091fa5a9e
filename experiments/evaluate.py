"""Measures a saved classifier on labelled rows: accuracy, F1, calibration and confusion, printed and as a page.

knnprompt evaluate --classifier=my_classifier --input=test.csv
knnprompt evaluate --classifier=my_classifier --input=test.csv --label_column=team --output=evaluation
"""

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as commands

FLAGS = app.Flags(commands.EvaluationSettings)


def main() -> None:
    from knnprompt_jax.commands import evaluate_job

    app.show(evaluate_job.run(FLAGS.value))


if __name__ == "__main__":
    FLAGS.run(main)
