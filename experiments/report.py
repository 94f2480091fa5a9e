"""Shows records: the paper's tables and figures on one page beside the paper's numbers, or tables of methods and tasks.

python experiments/report.py --records=results --output=report         # records of experiments/paper.py
python experiments/report.py --records=results --format=text           # records of experiments/compare.py
python experiments/report.py --records=results --format=markdown
"""

import dataclasses
import pathlib

from knnprompt_jax import app, options
from knnprompt_jax.paper import page
from knnprompt_jax.runs import overview, records


@dataclasses.dataclass(frozen=True)
class ReportOptions(options.Options):
    """Which records to show, and how."""

    records: str = options.option(
        "results", "Folder of the records; for a page, with a folder for each experiment.", needed=True
    )
    format: str = options.option(
        "page",
        "page: the paper's tables and figures. text and markdown: printed tables of methods and tasks.",
        choices=("page", "text", "markdown"),
    )
    output: str = options.option("report", "Folder of the page: index.html and tables/.", needed=True)


FLAGS = app.Flags(ReportOptions)


def main() -> None:
    chosen = FLAGS.value
    if chosen.format == "page":
        print(f"page: {page.run(chosen.records, chosen.output)}")
    else:
        print(overview.by_shots(records.read_all(pathlib.Path(chosen.records)), chosen.format == "markdown"))


if __name__ == "__main__":
    app.run(main, FLAGS)
