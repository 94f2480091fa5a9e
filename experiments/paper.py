"""Runs the grid of one of the paper's tables or figures: prints what it will cost, then writes a record per run.

python experiments/paper.py --config=configs/paper.py:few_shot --config.data_dir=data
python experiments/paper.py --config=configs/paper.py:data_scaling --config.data_dir=data --config.models=gpt2-xl --dry_run

Start it again after an interruption: what is there already is not run again.
"""

from absl import flags

from knnprompt_jax import app
from knnprompt_jax.paper import job, whole

_CONFIG = app.Config(__file__, "paper.py:few_shot", whole.settings_of)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the plan and its cost, and run nothing.")


def main() -> None:
    job.run(_CONFIG.value, _DRY_RUN.value)


if __name__ == "__main__":
    app.run(main)
