"""Estimate the memory and time of a job on accelerators that you need not have, and the mesh to choose.

python experiments/plan.py --config.model=tiny --config.topology=cpu:8
python experiments/plan.py --config.model=facebook/opt-30b --config.dtype=bfloat16 --config.topology=v5e:4x4 --config.task=trec
"""

import pathlib

import jax

from knnprompt_jax import app
from knnprompt_jax.planning import job, report, settings

_CONFIG = app.Config(__file__, "plan.py", settings.PlanSettings)


def main() -> None:
    jax.config.update("jax_platforms", "cpu")  # A plan uses no accelerator.
    plan = job.run(_CONFIG.value)
    print(report.render(plan))
    print(f"\nrecord: {report.write(pathlib.Path(_CONFIG.value.output), plan)}")


if __name__ == "__main__":
    app.run(main, keep_programs=False)
