"""Draws the records of experiments/paper.py: one page with every table and figure beside the paper's numbers.

python experiments/report.py --records=results --output=report
"""

import dataclasses

from knnprompt_jax import app, options
from knnprompt_jax.paper import page


@dataclasses.dataclass(frozen=True)
class ReportOptions(options.Options):
    records: str = options.option("results", "Folder in which each experiment has a folder of records.", needed=True)
    output: str = options.option("report", "Folder to write index.html and tables/ to.", needed=True)


_OPTIONS = app.Flags(ReportOptions)


def main() -> None:
    print(f"page: {page.run(**_OPTIONS.value.to_dict())}")


if __name__ == "__main__":
    app.run(main)
