"""Measures the host memory that loading a sharded model takes.

python experiments/benchmark_loading.py
"""

from knnprompt_jax import app
from knnprompt_jax.benchmark import loading

_CONFIG = app.Config(__file__, "benchmark_loading.py", loading.LoadingSettings)


def main() -> None:
    print(loading.run(_CONFIG.value))


if __name__ == "__main__":
    app.run(main, keep_programs=False)
