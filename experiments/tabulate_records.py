"""Methods against tasks, for each number of shots, from a folder of records.

python experiments/tabulate_records.py --records=results
python experiments/tabulate_records.py --records=results --markdown
"""

import dataclasses
import pathlib

from knnprompt_jax import app, options
from knnprompt_jax.runs import overview, records


@dataclasses.dataclass(frozen=True)
class TableOptions(options.Options):
    records: str = options.option("results", "Folder of the JSON records.", needed=True)
    markdown: bool = options.option(False, "Print Markdown tables.")


_OPTIONS = app.Flags(TableOptions)


def main() -> None:
    print(overview.by_shots(records.read_all(pathlib.Path(_OPTIONS.value.records)), _OPTIONS.value.markdown))


if __name__ == "__main__":
    app.run(main)
