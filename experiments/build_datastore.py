"""Builds a classifier's anchors and saves it, going on where an earlier start died; or changes a saved one.

python experiments/build_datastore.py --config.store=stores/demo
python experiments/build_datastore.py --config.store=stores/trec --config.task=trec --config.data_dir=data --config.shots=1024
"""

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import building, settings

_CONFIG = app.Config(__file__, "build_datastore.py", settings.BuildSettings)


def main() -> None:
    result = building.run(_CONFIG.value)
    if parallel.is_main():
        print(building.summarize(result))
        print(f"saved: {_CONFIG.value.store}/")


if __name__ == "__main__":
    app.run(main)
