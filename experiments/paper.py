"""Runs the grid of one of the paper's tables or figures: prints what is missing, then writes a record per run.

knnprompt paper --config=configs/few_shot.py --data_dir=data
knnprompt paper --config=configs/data_scaling.py --data_dir=data --models=gpt2-xl --dry_run

Rerun the same command to resume after an interruption: finished runs are not repeated.
"""

from knnprompt_jax.cli import app
from knnprompt_jax.cli import paper_settings as grids

FLAGS = app.Flags(grids.GridSettings, config="configs/few_shot.py")


def main() -> None:
    from knnprompt_jax.study import paper_grid

    paper_grid.run(FLAGS.value)


if __name__ == "__main__":
    FLAGS.run(main)
