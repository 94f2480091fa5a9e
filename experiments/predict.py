"""Labels the rows of a file, or one text, with a saved classifier.

python experiments/predict.py --classifier=my_classifier --input=rows.csv --output=labels.jsonl
python experiments/predict.py --classifier=my_classifier --text="I was charged twice" --probabilities
cat lines.txt | python experiments/predict.py --classifier=my_classifier --input=- --format=txt --output=- | head

Rerun the same command to resume after an interruption.
"""

import sys

from knnprompt_jax import app
from knnprompt_jax.settings import commands

FLAGS = app.Flags(commands.PredictionSettings)


def main() -> None:
    from knnprompt_jax import errors, parallel
    from knnprompt_jax.prediction import job

    done = job.run(FLAGS.value)
    stream = sys.stderr if FLAGS.value.output == commands.STANDARD else sys.stdout
    saved = "" if FLAGS.value.output == commands.STANDARD else f"saved: {FLAGS.value.output}, "
    earlier = f" ({done.earlier:,} by an earlier run)" if done.earlier else ""
    total, rate = done.earlier + done.rows, f"{done.rows / max(1e-9, done.seconds):,.1f} rows/s"
    counted = f": {done.counts}" if done.counts else ""
    if parallel.is_main() and not FLAGS.value.text:
        print(errors.printable(f"{saved}{total:,} row{'s' * (total != 1)}{earlier}{counted}, {rate}"), file=stream)


if __name__ == "__main__":
    FLAGS.run(main)
