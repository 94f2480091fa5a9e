"""Trains a small GPT-2 from text files; started again after an interruption, it continues.

python experiments/pretrain.py --config.text=corpus/ --config.output=checkpoints/tiny
"""

from knnprompt_jax import app
from knnprompt_jax.pretraining import job
from knnprompt_jax.runs import settings

_CONFIG = app.config_flag(__file__, "pretrain.py")


def main() -> None:
    config = settings.from_config(job.PretrainSettings, _CONFIG.value)
    result = job.run(config)
    print(f"held-out loss {result['held_out_loss']:.4f} nats a token, perplexity {result['held_out_perplexity']:.2f}")
    print(f"model: {config.output}/model")


if __name__ == "__main__":
    app.run(main)
