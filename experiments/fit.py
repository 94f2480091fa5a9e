"""Makes a classifier of a table of texts and labels and saves it; started again after an interruption, it goes on.

python experiments/fit.py --train_file=train.csv --store=my_classifier
python experiments/fit.py --train_file=train.csv --store=my_classifier --task=support.yaml --demo_shots=0 --knn.rule=probe
python experiments/fit.py --store=my_classifier --append=more.csv
python experiments/fit.py --store=my_classifier --relabel=look/suggestions.csv --remove_ids=3,17
"""

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import fitting

_OPTIONS = app.Flags(fitting.FitSettings)


def main() -> None:
    result = fitting.building.run(_OPTIONS.value)
    if parallel.is_main():
        print(fitting.summarize(result))
        print(f"saved: {_OPTIONS.value.store}/")


if __name__ == "__main__":
    app.run(main)
