"""Measure the throughput of building and searching a datastore, beside the device's peak and other libraries.

python experiments/benchmark.py
python experiments/benchmark.py --config.mode=construction --config.model=gpt2-xl --config.anchors=0
python experiments/benchmark.py --config.mode=construction --config.model=smollm2 --config.llama_python=llama/bin/python
"""

import pathlib

from knnprompt_jax import app
from knnprompt_jax.benchmark import job, report, settings

_CONFIG = app.Config(__file__, "benchmark.py", settings.BenchmarkSettings)


def main() -> None:
    result = job.run(_CONFIG.value)
    print(report.render(result))
    print(f"\nrecord: {report.write(pathlib.Path(_CONFIG.value.output), result)}")


if __name__ == "__main__":
    app.run(main, keep_programs=False)
