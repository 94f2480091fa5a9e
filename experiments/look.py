"""Draws the anchors of a saved classifier: map, confusion, calibration, and the anchors that deserve a second look.

python experiments/look.py --store=my_classifier --output=look
"""

from knnprompt_jax import app
from knnprompt_jax.report import look

_OPTIONS = app.Flags(look.LookOptions)


def main() -> None:
    print(f"page: {look.run(_OPTIONS.value)}")


if __name__ == "__main__":
    app.run(main)
