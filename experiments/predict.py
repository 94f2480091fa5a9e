"""Labels the rows of a file, or one text, with a saved classifier.

knnprompt predict --classifier=my_classifier --input=rows.csv --output=labels.jsonl
knnprompt predict --classifier=my_classifier --text="I was charged twice" --probabilities
cat lines.txt | knnprompt predict --classifier=my_classifier --input=- --format=txt --output=- | head

Rerun the same command to resume after an interruption.
"""

import sys

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as commands

FLAGS = app.Flags(commands.PredictionSettings)


def main() -> None:
    from knnprompt_jax.commands import predict_job
    from knnprompt_jax.common import errors, parallel

    settings = FLAGS.value
    done = predict_job.run(settings)
    if settings.text or not parallel.is_main():
        return
    is_standard = settings.output == commands.STANDARD
    saved = "" if is_standard else f"saved: {settings.output}, "
    total = done.outcomes.total()
    earlier = f" (after {done.earlier:,} by an earlier run)" if done.earlier else ""
    has_empty = settings.max_error is not None or settings.reject_novel is not None
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(done.outcomes.items())) if has_empty else ""
    rate = total / max(1e-9, done.seconds)
    text = f"{saved}{total:,} row{'s' * (total != 1)}{earlier}{counts and ': '}{counts}, {rate:,.1f} rows/s"
    print(errors.printable(text), file=sys.stderr if is_standard else sys.stdout)


if __name__ == "__main__":
    FLAGS.run(main)
