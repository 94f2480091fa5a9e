"""Checks results and measures speeds on this machine's devices: two tables, and a JSON file.

knnprompt check    # some minutes; run it once on a new machine
knnprompt check --quick    # correctness only, about 75 s of CPU time
knnprompt check --shapes=gpt2,facebook/opt-6.7b
srun python experiments/check.py --distributed.auto

It compares with JAX on a CPU in the same process. The exit status is 1 if a line says FAIL.
"""

import sys

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as settings_lib

FLAGS = app.Flags(settings_lib.CheckSettings, keeps_programs=False)


def main() -> None:
    from knnprompt_jax.common import files, parallel
    from knnprompt_jax.devices import check_runner, device_report

    settings = FLAGS.value
    if settings.quick:  # Nothing is measured.
        files.keep_programs()
    path = device_report.new_path(settings.output, "check")
    record = check_runner.run(settings, path)
    if parallel.is_main() or record["failed"]:
        app.show(f"{device_report.render(record)}\n\nrecord: {path}")
    if record["failed"]:
        sys.exit(1)


if __name__ == "__main__":
    FLAGS.run(main)
