"""Explains the label of one text: the contribution of each word, and the nearest anchors.

knnprompt explain --classifier=my_classifier --text="I was charged twice"
knnprompt explain --classifier=my_classifier --text='{"title": "Invoice", "body": "I was charged twice"}'
knnprompt explain --classifier=my_classifier --text="I was charged twice" --tokens=5
"""

import pathlib

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as commands

FLAGS = app.Flags(commands.ExplanationSettings)


def main() -> None:
    from knnprompt_jax.classifier import classifier_file, explanation
    from knnprompt_jax.commands import unlabelled
    from knnprompt_jax.study import job_inputs

    saved = classifier_file.read(pathlib.Path(FLAGS.value.classifier))
    row = unlabelled.parse_text(saved.content.task, FLAGS.value.text).fields
    mesh = job_inputs.choose_saved_mesh(FLAGS.value.mesh, saved.content.model)
    fitted = saved.restore(saved.load_model(mesh))
    print(explanation.explain(fitted, row, num_tokens=FLAGS.value.tokens))


if __name__ == "__main__":
    FLAGS.run(main)
