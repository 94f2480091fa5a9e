"""Builds a datastore and saves it, going on where an earlier start died; or changes a saved one.

python experiments/build_datastore.py --config.store=stores/demo
python experiments/build_datastore.py --config.store=stores/trec --config.task=trec --config.data_dir=data --config.shots=1024
"""

from knnprompt_jax import app, parallel
from knnprompt_jax.runs import datastore_job, settings

_CONFIG = app.config_flag(__file__, "build_datastore.py")


def main() -> None:
    build = settings.from_config(settings.BuildSettings, _CONFIG.value)
    result = datastore_job.run(build)
    if parallel.is_main():
        print(datastore_job.summarize(result))
        print(f"saved: {build.store}/")


if __name__ == "__main__":
    app.run(main)
