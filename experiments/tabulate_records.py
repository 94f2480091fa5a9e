"""Methods against tasks, for each number of shots, from a folder of records.

python experiments/tabulate_records.py --records=results
python experiments/tabulate_records.py --records=results --markdown
"""

import pathlib

from absl import flags

from knnprompt_jax import app
from knnprompt_jax.runs import overview, records

_RECORDS = flags.DEFINE_string("records", "results", "Folder of the JSON records.")
_MARKDOWN = flags.DEFINE_bool("markdown", False, "Print Markdown tables.")


def main() -> None:
    print(overview.by_shots(records.read_all(pathlib.Path(_RECORDS.value)), _MARKDOWN.value))


if __name__ == "__main__":
    app.run(main)
