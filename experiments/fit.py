"""Fits a classifier to a table of texts and labels, or to a task's rows, and saves it. An interrupted run resumes.

python experiments/fit.py --train_file=train.csv --store=my_classifier
python experiments/fit.py --train_file=train.csv --store=my_classifier --task=support.yaml --demo_shots=0 --rule=probe
python experiments/fit.py --rule=knn --task=trec --data_dir=data --shots=32 --store=stores/trec
python experiments/fit.py --store=my_classifier --append=more.csv
python experiments/fit.py --store=my_classifier --relabel=look/suggestions.csv --remove_ids=3,17
"""

import shlex

from knnprompt_jax import app
from knnprompt_jax.settings import commands

FLAGS = app.Flags(commands.FitSettings)


def main() -> None:
    from knnprompt_jax import parallel
    from knnprompt_jax.runs import fitting

    result = fitting.run(FLAGS.value)
    if parallel.is_main():
        store = shlex.quote(FLAGS.value.store)
        app.show(fitting.summarize(result).replace("--store=FOLDER", f"--store={store}"))
        app.show(f"saved: {FLAGS.value.store}/")
        app.show(f"next: knnprompt evaluate --store={store} --input=test.csv")
        app.show(f"      knnprompt look --store={store}")
        app.show(f"      knnprompt predict --store={store} --input=rows.csv --output=labels.jsonl")


if __name__ == "__main__":
    FLAGS.run(main)
