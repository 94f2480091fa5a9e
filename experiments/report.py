"""Draws the records of experiments/paper.py: one page with every table and figure beside the paper's numbers.

python experiments/report.py --records=results --output=report
"""

from absl import flags

from knnprompt_jax import app
from knnprompt_jax.paper import page

_RECORDS = flags.DEFINE_string("records", "results", "Folder in which each experiment has a folder of records.")
_OUTPUT = flags.DEFINE_string("output", "report", "Folder to write index.html and tables/ to.")


def main() -> None:
    print(f"page: {page.run(_RECORDS.value, _OUTPUT.value)}")


if __name__ == "__main__":
    app.run(main)
