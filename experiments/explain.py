"""Explains the label of one text: the contribution of each word, and the nearest anchors.

python experiments/explain.py --store=my_classifier --text="I was charged twice"
python experiments/explain.py --store=my_classifier --text='{"title": "Invoice", "body": "I was charged twice"}'
"""

import dataclasses
import pathlib

from knnprompt_jax import app, options, parallel
from knnprompt_jax.classifier import estimator, saving
from knnprompt_jax.prediction import rows
from knnprompt_jax.runs import settings


@dataclasses.dataclass(frozen=True)
class ExplanationSettings(settings.SavedOptions):
    """The classifier and the text."""

    text: str = options.option(
        "", "The text, or a JSON object with the fields if the classifier has several.", needed=True
    )


FLAGS = app.Flags(ExplanationSettings)


def main() -> None:
    saved = saving.read(pathlib.Path(FLAGS.value.store))
    row = rows.of_text(saved.content.task, FLAGS.value.text)
    classifier = estimator.restore(saved, saved.load_model(parallel.make_mesh(0, FLAGS.value.mesh_model)))
    print(classifier.explain(row))


if __name__ == "__main__":
    app.run(main, FLAGS)
