"""Any set of methods on the same splits: one table, and a JSON record per run and method.

python experiments/compare.py
python experiments/compare.py --config.methods=icl,knn,linear_probe --config.task=trec --config.data_dir=data

Records are written as they come: --config.resume goes on after an interruption.
experiments/tabulate_records.py puts several runs into tables.
"""

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import comparison, overview, settings

_CONFIG = app.Config(__file__, "compare.py", settings.JobSettings)


def main() -> None:
    records = comparison.run(_CONFIG.value)
    if parallel.is_main():
        print(overview.describe_comparison(records))
        print(f"records: {_CONFIG.value.output}/")


if __name__ == "__main__":
    app.run(main)
