"""Labels the rows of a file with a saved classifier; started again after an interruption, it goes on.

python experiments/predict.py --store=my_store --input=rows.csv --output=labels.jsonl
cat lines.txt | python experiments/predict.py --store=my_store --input=- --format=txt --output=- | head
"""

import sys

from knnprompt_jax import app
from knnprompt_jax.prediction import job, outputs

_OPTIONS = app.Flags(job.PredictionSettings)


def main() -> None:
    done = job.run(_OPTIONS.value)
    shown = sys.stderr if _OPTIONS.value.output == outputs.STANDARD else sys.stdout
    after = f" after {done.earlier} earlier" if done.earlier else ""
    near = f"; rounding decides {done.by_rounding} of all" if done.by_rounding else ""
    print(f"{done.rows} rows{after}, {done.rows / max(1e-9, done.seconds):.1f} rows/s{near}", file=shown)


if __name__ == "__main__":
    app.run(main)
