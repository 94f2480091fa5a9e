"""Measures the host memory that loading a sharded model takes.

python experiments/benchmark_loading.py
"""

from knnprompt_jax import app
from knnprompt_jax.benchmark import loading

_CONFIG = app.config_flag(__file__, "benchmark_loading.py")


def main() -> None:
    config = _CONFIG.value
    print(loading.render(loading.run(config.files, config.gigabytes, config.processes, config.devices, config.folder)))


if __name__ == "__main__":
    app.run(main)
