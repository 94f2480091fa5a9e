"""Measures the construction and search of a datastore, beside the device's peak and other programs.

python experiments/benchmark.py    # SmolLM2, demo task; some minutes on two CPU cores
python experiments/benchmark.py --mode=construction --task=trec --data_dir=data --anchors=0
python experiments/benchmark.py --mode=construction --model=smollm2  # llama.cpp: pip install llama-cpp-python
python experiments/benchmark.py --mode=construction --model=opt-6.7b --dtype=bfloat16 --peers=jax_one,jax_batched

PyTorch shares the device: on a GPU, set XLA_PYTHON_CLIENT_PREALLOCATE=false to leave memory for it.
"""

from knnprompt_jax import app
from knnprompt_jax.settings import planning

FLAGS = app.Flags(planning.BenchmarkSettings)


def main() -> None:
    from knnprompt_jax.benchmark import job
    from knnprompt_jax.planning import report

    result = job.run(FLAGS.value)
    app.show(report.render(result))
    app.show(f"\nrecord: {report.write(FLAGS.value.output, 'benchmark', FLAGS.value, result)}")


if __name__ == "__main__":
    app.run(main, FLAGS, keep_programs=False)
