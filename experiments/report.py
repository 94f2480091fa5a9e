"""Draws the records of `paper`: one page with every table and figure beside the paper's numbers.

python experiments/report.py --records=results --output=report         # records of `paper`
python experiments/report.py --records=results --format=text           # records of `compare`
python experiments/report.py --records=results --format=markdown
"""

from knnprompt_jax import app
from knnprompt_jax.settings import grids

FLAGS = app.Flags(grids.ReportSettings)


def main() -> None:
    from knnprompt_jax.paper import page

    app.show(page.run(FLAGS.value))


if __name__ == "__main__":
    FLAGS.run(main)
