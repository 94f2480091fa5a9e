"""Draws the anchors of a saved classifier: map, confusion, calibration, and the anchors that deserve a second look.

python experiments/look.py --store=my_classifier --output=look
"""

from absl import flags

from knnprompt_jax import app

_STORE = flags.DEFINE_string("store", None, "Folder to which a classifier was saved.", required=True)
_OUTPUT = flags.DEFINE_string("output", "look", "Folder to write index.html to.")
_POINTS = flags.DEFINE_integer("points", 1000, "Anchors on the map at most.")


def main() -> None:
    from knnprompt_jax.report import look

    print(f"page: {look.run(_STORE.value, _OUTPUT.value, _POINTS.value)}")


if __name__ == "__main__":
    app.run(main)
