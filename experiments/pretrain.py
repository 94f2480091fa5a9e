"""Trains a small GPT-2 from text files; started again after an interruption, it continues.

python experiments/pretrain.py --config.text=corpus/ --config.output=checkpoints/tiny
"""

from knnprompt_jax import app
from knnprompt_jax.pretraining import job, settings

_CONFIG = app.Config(__file__, "pretrain.py", settings.PretrainSettings)


def main() -> None:
    result = job.run(_CONFIG.value)
    print(f"held-out loss {result['held_out_loss']:.4f} nats per token, perplexity {result['held_out_perplexity']:.2f}")
    print(f"model: {_CONFIG.value.output}/model")


if __name__ == "__main__":
    app.run(main, keep_programs=False)
