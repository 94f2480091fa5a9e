"""Fine-tunes a BERT or a decoder with a classification head, to compare with methods that train no model.

knnprompt fine_tune --model=tiny --shots=8 --seeds=1,2
knnprompt fine_tune --method=fine_tuning_bert --tasks=sst2,mr --data_dir=data --experiment=fine_tuning
knnprompt fine_tune --model=gpt2 --tasks=own --train_file=train.csv --eval_file=test.csv

Records have the format of compare and paper; `report` shows them together. A finished run is skipped, and a killed
run resumes.
"""

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as commands

FLAGS = app.Flags(commands.FineTuneSettings)


def main() -> None:
    from knnprompt_jax.common import parallel
    from knnprompt_jax.report import accuracies, page
    from knnprompt_jax.study import fine_tuning

    done = fine_tuning.run(FLAGS.value)
    if parallel.is_main():
        app.show(page.to_text(accuracies.section(done)))
        app.show(f"\nrecords: {FLAGS.value.output}/; to see them: knnprompt report --records={FLAGS.value.output}")


if __name__ == "__main__":
    FLAGS.run(main)
