"""Measures the construction of a datastore beside the device's peak and PyTorch, or estimates it for other devices.

python experiments/benchmark.py    # SmolLM2, demo task; some minutes on two CPU cores
python experiments/benchmark.py --task=trec --data_dir=data --anchors=0
python experiments/benchmark.py --dry_run --model=facebook/opt-30b --dtype=bfloat16 --topology=v5e:4x4

A dry run loads no weights and takes a second. PyTorch shares the device: on a GPU, set
XLA_PYTHON_CLIENT_PREALLOCATE=false to leave memory for it.
"""

import pathlib

from knnprompt_jax import app
from knnprompt_jax.settings import benchmark as settings_lib

FLAGS = app.Flags(settings_lib.BenchmarkSettings, keeps_programs=False)


def main() -> None:
    import jax

    from knnprompt_jax import files
    from knnprompt_jax.benchmark import construction, dry_run, report

    settings = FLAGS.value
    files.check_writable(pathlib.Path(settings.output), folder=True)
    if settings.dry_run:
        if settings.topology:
            jax.config.update("jax_platforms", "cpu")  # Occupy no accelerator.
        kind = "dry_run"
        result = dry_run.run(settings)
    else:
        kind = "benchmark"
        result = report.describe_machine() | construction.run(settings)
    report.publish(settings.output, kind, settings, result)


if __name__ == "__main__":
    FLAGS.run(main)
