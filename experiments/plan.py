"""Plans a job on accelerators that you do not have: memory, time and the mesh to choose.

python experiments/plan.py --model=tiny --topology=cpu:8
python experiments/plan.py --model=facebook/opt-30b --dtype=bfloat16 --topology=v5e:4x4 --task=trec --data_dir=data
python experiments/plan.py --model=Qwen/Qwen3-32B --topology=h100:8 --compile=False    # within a second

No weights are read or downloaded. Plans for TPUs need their compiler: pip install 'knnprompt_jax[tpu]', 213 MB.
"""

from knnprompt_jax import app
from knnprompt_jax.settings import planning

FLAGS = app.Flags(planning.PlanSettings)


def main() -> None:
    import jax

    from knnprompt_jax.planning import job, report

    jax.config.update("jax_platforms", "cpu")  # Planning occupies no accelerator.
    result = job.run(FLAGS.value)
    app.show(report.render(result))
    app.show(f"\nrecord: {report.write(FLAGS.value.output, 'plan', FLAGS.value, result)}")


if __name__ == "__main__":
    app.run(main, FLAGS, keep_programs=False)
