"""Checks results and measures speeds on this machine's devices: one table, and a JSON file.

python experiments/check.py    # 8 minutes at most; run it once on a new machine
python experiments/check.py --quick    # correctness only, under a minute
python experiments/check.py --minutes=30 --shapes=gpt2,facebook/opt-6.7b
srun python experiments/check.py --distributed.auto

It compares with JAX on a CPU in the same process. The exit status is 1 if a line says FAIL.
"""

import sys

from knnprompt_jax import app
from knnprompt_jax.settings import check as settings_lib

FLAGS = app.Flags(settings_lib.CheckSettings, keeps_programs=False)


def main() -> None:
    from knnprompt_jax import compilation_cache, parallel
    from knnprompt_jax.benchmark import report
    from knnprompt_jax.check import runner

    settings = FLAGS.value
    if settings.quick:  # Nothing is measured.
        compilation_cache.use()
    path = report.new_path(settings.output, "check")
    record = runner.run(settings, path)
    if parallel.is_main():
        app.show(runner.render(record))
        app.show(f"\nrecord: {path}")
    if record["failed"]:
        sys.exit(1)


if __name__ == "__main__":
    FLAGS.run(main)
