"""Measures the construction of a datastore beside the device's peak, or estimates it for other devices.

knnprompt benchmark    # SmolLM2, demo task; a minute on two CPU cores
knnprompt benchmark --task=trec --data_dir=data --anchors=0
knnprompt benchmark --dry_run --model=facebook/opt-30b --dtype=bfloat16 --topology=v5e:4x4

Both measure how fast this host prepares prompts. A dry run loads no weights and takes some seconds.
"""

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as settings_lib

FLAGS = app.Flags(settings_lib.BenchmarkSettings, keeps_programs=False)


def main() -> None:
    import jax

    from knnprompt_jax.devices import device_report, estimate, machine, speeds

    settings = FLAGS.value
    if settings.dry_run:
        if settings.topology:
            jax.config.update("jax_platforms", "cpu")  # Occupy no accelerator.
        device_report.publish(settings.output, "dry_run", settings, estimate.run(settings))
    else:
        device_report.publish(settings.output, "benchmark", settings, machine.describe() | speeds.run(settings))


if __name__ == "__main__":
    FLAGS.run(main)
