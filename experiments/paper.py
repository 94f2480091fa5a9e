"""Runs the grid of one of the paper's tables or figures: prints its cost, then writes a record per run.

python experiments/paper.py --config=configs/few_shot.py --data_dir=data
python experiments/paper.py --config=configs/data_scaling.py --data_dir=data --models=gpt2-xl --dry_run

Rerun the same command to resume after an interruption: finished runs are not repeated.
"""

import sys

from absl import flags

from knnprompt_jax import app
from knnprompt_jax.settings import grids

FLAGS = app.Flags(grids.GridSettings, config="configs/few_shot.py")
DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the plan and its cost, and run nothing.", module_name=sys.argv[0])


def main() -> None:
    from knnprompt_jax.study import paper_grid as grid

    grid.run(FLAGS.value, DRY_RUN.value)


if __name__ == "__main__":
    FLAGS.run(main)
