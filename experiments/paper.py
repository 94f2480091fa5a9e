"""Runs the grid of one of the paper's tables or figures: prints what it will cost, then writes a record a run.

python experiments/paper.py --config=configs/paper/few_shot.py --config.data_dir=data
python experiments/paper.py --config=configs/paper/data_scaling.py --config.data_dir=data --config.models=gpt2-xl --dry_run

Start it again after an interruption: what is there already is not run again.
"""

import dataclasses

from absl import flags

from knnprompt_jax import app
from knnprompt_jax.paper import job
from knnprompt_jax.paper import settings as grid_settings
from knnprompt_jax.runs import settings

_CONFIG = app.config_flag(__file__, "paper/few_shot.py", base="knnprompt_jax/paper/base.py")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Print the plan and its cost, and run nothing.")


def main() -> None:
    config = _CONFIG.value.to_dict()
    options = config.pop("options")
    grid = dataclasses.replace(settings.from_config(grid_settings.GridSettings, config), options=options)
    job.run(grid, _DRY_RUN.value)


if __name__ == "__main__":
    app.run(main)
