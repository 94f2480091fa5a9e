"""Measure lm-evaluation-harness with our model beside its own `hf` model.

pip install 'lm-eval[hf]' torch
python -m tools.benchmark_harness --model=smollm2

Both score the label words of rows of the demo task after the same demonstrations. Compilation is timed, loading is not.
"""

import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import tasks
from knnprompt_jax.cli import app
from knnprompt_jax.common import options
from knnprompt_jax.inference.prompts import layout
from tools import benchmark_classifiers


class HarnessSettings(options.Options):
    """The model and the rows to score."""

    model: str = options.option("smollm2", "The model that both load.", nonempty=True)
    rows: int = options.option(60, "Rows to classify.", least=1)
    demonstrations: int = options.option(8, "Train rows before each of them.", least=0)
    output: str = options.option("benchmarks", "Folder of the JSON file.", nonempty=True)


def run(settings: HarnessSettings) -> dict[str, Any]:
    """Return the seconds of both models, and the largest difference of a log-likelihood in nats."""
    from lm_eval.models import huggingface

    from knnprompt_jax import harness

    requests = _requests(settings.rows, settings.demonstrations)
    with tempfile.TemporaryDirectory() as folder:
        path = benchmark_classifiers.export(settings.model, pathlib.Path(folder))
        models = {
            "knnprompt": harness.HarnessModel(settings.model),
            "hf": huggingface.HFLM(path, device="cpu", dtype="float32"),
        }
        scores = {}
        seconds = {}
        for name, model in models.items():
            started = time.monotonic()
            scores[name] = np.array([score for score, _ in model.loglikelihood(requests, disable_tqdm=True)])
            seconds[name] = round(time.monotonic() - started, 1)
    return {
        "model": settings.model,
        "scores": len(requests),
        "largest_difference_in_nats": float(np.abs(scores["knnprompt"] - scores["hf"]).max()),
        "speed": [{"lm_eval_model": name, "seconds": seconds[name]} for name in models],
    }


def _requests(num_rows: int, num_demonstrations: int) -> Sequence[Any]:
    """Return a request for each row and class."""
    from lm_eval.api import instance

    task = tasks.get("demo")
    demonstrations = layout.demonstration_text(task, tasks.load_rows(task, "train")[:num_demonstrations])
    texts = [
        (demonstrations + task.render(row), f" {word}")
        for row in tasks.load_rows(task, "dev_subsample")[:num_rows]
        for word in task.label_words
    ]
    return [instance.Instance("loglikelihood", {}, text, index) for index, text in enumerate(texts)]


if __name__ == "__main__":
    FLAGS = app.Flags(HarnessSettings)

    def main() -> None:
        """Print and save the result."""
        from knnprompt_jax.devices import device_report, machine

        result = machine.describe() | run(FLAGS.value)
        device_report.publish(FLAGS.value.output, "harness", FLAGS.value, result)

    FLAGS.run(main)
