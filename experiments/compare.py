"""Any set of methods on the same splits: one table, and a JSON record a run and method.

python experiments/compare.py
python experiments/compare.py --config.methods=icl,knn,linear_probe --config.task=trec --config.data_dir=data

Records are written as they come: --config.resume goes on after an interruption.
experiments/tabulate_records.py puts several runs into tables.
"""

import dataclasses

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import comparison, overview, settings

_CONFIG = app.config_flag(__file__, "compare.py")


def main() -> None:
    config = _CONFIG.value.to_dict()
    options = config.pop("options")
    run = dataclasses.replace(settings.from_config(comparison.ComparisonSettings, config), options=options)
    records = comparison.run(run)
    if parallel.is_main():
        print(overview.of_comparison(records))
        print(f"records: {run.output}/")


if __name__ == "__main__":
    app.run(main)
