"""Labels the rows of a file with a saved classifier; started again after an interruption, it goes on.

python experiments/predict.py --store=my_store --input=rows.csv --output=labels.jsonl
cat lines.txt | python experiments/predict.py --store=my_store --input=- --format=txt --output=- | head
"""

import sys

from absl import flags

from knnprompt_jax import app
from knnprompt_jax.prediction import job, outputs, rows, writing

_STORE = flags.DEFINE_string("store", None, "Folder of a saved classifier (KNNPrompting.save).", required=True)
_INPUT = flags.DEFINE_string("input", None, "File of rows, or - for standard input.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "File to write, or - for standard output.", required=True)
_FORMAT = flags.DEFINE_string("format", "", f"Of the input, where its name does not say: {', '.join(rows.KINDS)}.")
_OUTPUT_FORMAT = flags.DEFINE_string("output_format", "", f"Where its name does not say: {', '.join(writing.KINDS)}.")
_ENCODING = flags.DEFINE_string("encoding", "utf-8", "Of the input's characters.")
_PROBABILITIES = flags.DEFINE_bool("probabilities", False, "Write every class's probability too.")
_MESH_MODEL = flags.DEFINE_integer("mesh_model", 1, "Devices that the weights are split over.")
_ON_BAD = flags.DEFINE_string("on_bad", "stop", f"What a bad row does: {', '.join(job.ON_BAD)}.")


def main() -> None:
    settings = job.PredictionSettings(
        store=_STORE.value,
        input=_INPUT.value,
        output=_OUTPUT.value,
        format=_FORMAT.value,
        output_format=_OUTPUT_FORMAT.value,
        encoding=_ENCODING.value,
        probabilities=_PROBABILITIES.value,
        on_bad=_ON_BAD.value,
        mesh_model=_MESH_MODEL.value,
    )
    done = job.run(settings)
    shown = sys.stderr if _OUTPUT.value == outputs.STANDARD else sys.stdout
    after = f" after {done.earlier} earlier" if done.earlier else ""
    print(f"{done.rows} rows{after}, {done.rows / max(1e-9, done.seconds):.1f} rows/s", file=shown)


if __name__ == "__main__":
    app.run(main)
