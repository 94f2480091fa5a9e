"""Draws the records of experiments/paper.py: one page with every table and figure beside the paper's numbers.

python experiments/report.py --records=results --output=report
"""

from knnprompt_jax import app
from knnprompt_jax.paper import page

_OPTIONS = app.Flags(page.ReportSettings)


def main() -> None:
    print(page.run(_OPTIONS.value))


if __name__ == "__main__":
    app.run(main)
