"""Fits a classifier to a table of texts and labels, or to a task's rows, and saves it. An interrupted run resumes.

knnprompt fit --train_file=train.csv --classifier=my_classifier
knnprompt fit --train_file=look/table.csv --classifier=my_classifier --overwrite
knnprompt fit --train_file=train.csv --classifier=support --task=support.yaml --demo_shots=0
knnprompt fit --experts=knn --task=trec --data_dir=data --shots=32 --classifier=trec_classifier

To change a classifier, edit the table and fit again with --overwrite: only new prompts are read.
"""

import shlex

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as commands

FLAGS = app.Flags(commands.FitSettings)


def main() -> None:
    from knnprompt_jax.commands import fit_job
    from knnprompt_jax.common import parallel

    result = fit_job.run(FLAGS.value)
    if parallel.is_main():
        classifier = shlex.quote(FLAGS.value.classifier)
        app.show(fit_job.summarize(result))
        app.show(f"saved: {FLAGS.value.classifier}")
        app.show(f"next: knnprompt evaluate --classifier={classifier} --input=test.csv")
        app.show(f"      knnprompt look --classifier={classifier}")
        app.show(f"      knnprompt predict --classifier={classifier} --input=rows.csv --output=labels.jsonl")


if __name__ == "__main__":
    FLAGS.run(main)
