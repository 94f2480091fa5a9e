"""Draws the anchors of a saved classifier: map, confusion, calibration, and the anchors that deserve a second look.

python experiments/look.py --store=my_classifier --output=look
python experiments/fit.py --store=my_classifier --relabel=look/suggestions.csv    # once you went through the table
"""

from knnprompt_jax import app
from knnprompt_jax.report import look

_OPTIONS = app.Flags(look.LookOptions)


def main() -> None:
    written = look.run(_OPTIONS.value)
    print(f"page: {written.page}\nlabels that may be wrong: {written.suggestions}")


if __name__ == "__main__":
    app.run(main)
