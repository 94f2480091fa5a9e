"""Measures a saved classifier on rows whose labels are known: accuracy, F1, calibration and more, on a page too.

python experiments/evaluate.py --store=my_classifier --input=test.csv
python experiments/evaluate.py --store=my_classifier --input=test.csv --label_column=team --output=evaluation
"""

from knnprompt_jax import app
from knnprompt_jax.evaluation import job

_OPTIONS = app.Flags(job.EvaluationSettings)


def main() -> None:
    print(job.summarize(job.run(_OPTIONS.value)))


if __name__ == "__main__":
    app.run(main)
