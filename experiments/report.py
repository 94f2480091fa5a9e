"""Draws records on a page: those of `paper` beside the paper's numbers, or those of `compare`.

knnprompt report --records=results --output=report         # a page
knnprompt report --records=results --format=text           # the tables
"""

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as commands

FLAGS = app.Flags(commands.ReportSettings)


def main() -> None:
    from knnprompt_jax.study import paper_tables

    app.show(paper_tables.report(FLAGS.value))


if __name__ == "__main__":
    FLAGS.run(main)
