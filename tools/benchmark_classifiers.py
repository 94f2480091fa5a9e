"""Measure fitting and applying whole classifiers end to end, beside SetFit's frozen head and a pipeline.

pip install setfit sentence-transformers torch
XDG_CACHE_HOME=$(mktemp -d) python -m tools.benchmark_classifiers --task=trec --data_dir=data --encoder=FOLDER

Each procedure has the same train rows and the same other rows to classify, and a process of its own. `fit` counts
imports and loading. Ours must find an empty cache, or it does not read the prompts of an earlier run again.
"""

import pathlib
import tempfile
from typing import Any

from knnprompt_jax.cli import app
from knnprompt_jax.cli import shared_settings as shared
from knnprompt_jax.common import errors, options
from tools import peer_process

PROCEDURES = {
    "auto": "AutoClassifier, no demonstrations",
    "knn": "KNNPrompting",
    "setfit": "SetFit, frozen encoder, logistic regression",
    "pipeline": "transformers pipeline, last token's state, logistic regression",
}


class ClassifierSettings(shared.EvaluationOptions):
    """The rows and the classifiers to time."""

    model: str = options.option("smollm2", "The language model of ours and of the pipeline.", nonempty=True)
    encoder: str = options.option("sentence-transformers/all-MiniLM-L6-v2", "The encoder of SetFit.", nonempty=True)
    task: str = options.option("trec", shared.TASK_HELP, nonempty=True)
    rows: int = options.option(1000, "Train rows, and as many other rows of the train split to classify.", least=2)
    procedures: tuple[str, ...] = options.option(tuple(PROCEDURES), "Procedures to time.", choices=PROCEDURES)
    output: str = options.option("benchmarks", "Folder of the JSON file.", nonempty=True)


def export(name: str, folder: pathlib.Path) -> str:
    """Write the language model and its tokenizer for `transformers` and return the folder."""
    import jax.numpy as jnp

    from knnprompt_jax.devices import workload
    from knnprompt_jax.inference import lm
    from tools import export_model

    model = lm.LanguageModel.from_pretrained(name)
    export_model.save(
        folder, model.execution.decoder, {**workload.describe(name).hf, "pad_token_id": None}, jnp.float32
    )
    model.tokenizer.save_pretrained(folder)
    return str(folder)


def run(settings: ClassifierSettings) -> dict[str, Any]:
    """Return a row for each procedure: seconds to fit and to predict, and accuracy in %.

    Raises:
        UserError: too few rows, or a procedure that fails.
    """
    from knnprompt_jax.study import job_inputs as inputs

    task, pool = inputs.load_train(settings, settings.task, "")
    if len(pool) < 2 * settings.rows:
        raise errors.UserError(
            f"--rows={settings.rows}: {settings.task} has {len(pool)} train rows, and needs twice as many"
        )
    train = pool[: settings.rows]
    others = pool[settings.rows : 2 * settings.rows]
    texts = [task.retrieval_text(row) for row in train]
    queries = [task.retrieval_text(row) for row in others]
    labels = [row.label for row in train]
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {"auto": settings.model, "knn": settings.model, "setfit": settings.encoder}
        if "pipeline" in settings.procedures:
            paths["pipeline"] = export(settings.model, pathlib.Path(folder))
        for name in settings.procedures:
            process = peer_process.PeerProcess(PROCEDURES[name], "tools.classifier_peers")
            with process.pool:
                fit_seconds, _ = process.call("fit", procedure=name, path=paths[name], texts=texts, labels=labels)
                predict_seconds, predicted = process.call("predict", returns_result=True, texts=queries)
            right = sum(label == row.label for label, row in zip(predicted, others, strict=True))
            measured.append(
                {
                    "procedure": PROCEDURES[name],
                    "fit_seconds": round(fit_seconds, 1),
                    "predict_seconds": round(predict_seconds, 1),
                    "accuracy_percent": round(100 * right / len(others), 1),
                }
            )
    return {"model": settings.model, "task": settings.task, "rows": settings.rows, "classifiers": measured}


if __name__ == "__main__":
    FLAGS = app.Flags(ClassifierSettings)

    def main() -> None:
        """Print and save the result."""
        from knnprompt_jax.devices import device_report, machine

        result = machine.describe() | run(FLAGS.value)
        device_report.publish(FLAGS.value.output, "classifiers", FLAGS.value, result)

    FLAGS.run(main)
