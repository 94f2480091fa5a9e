"""Shows labels that are probably wrong and the rows to label next, as a page and as a table.

Writes a page and table.csv: the train rows and the rows to label next. Edit the table, then fit with it.

knnprompt look --classifier=my_classifier --output=look
knnprompt look --classifier=my_classifier --input=unlabelled.csv --budget=50
knnprompt fit --train_file=look/table.csv --classifier=my_classifier --overwrite
"""

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as commands

FLAGS = app.Flags(commands.LookSettings)


def main() -> None:
    from knnprompt_jax.commands import look_job

    app.show(look_job.run(FLAGS.value))


if __name__ == "__main__":
    FLAGS.run(main)
