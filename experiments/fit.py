"""Fits a classifier to a table or the train rows of a task and saves it, or changes a saved classifier.

python experiments/fit.py --train_file=train.csv --store=my_classifier
python experiments/fit.py --train_file=train.csv --store=my_classifier --task=support.yaml --demo_shots=0 --knn.rule=probe
python experiments/fit.py --task=trec --data_dir=data --shots=1024 --knn.rule=knn --store=stores/trec
python experiments/fit.py --store=my_classifier --append=more.csv
python experiments/fit.py --store=my_classifier --relabel=look/suggestions.csv --remove_ids=3,17

Rerun the same command to resume after an interruption.
"""

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import building, fitting

FLAGS = app.Flags(fitting.FitSettings)


def main() -> None:
    result = building.run(FLAGS.value)
    if parallel.is_main():
        print(fitting.summarize(result))
        print(f"saved: {FLAGS.value.store}/")


if __name__ == "__main__":
    app.run(main, FLAGS)
