"""How to fine-tune: the paper's numbers, and PET's for what the paper does not say."""

import dataclasses

from knnprompt_jax import options
from knnprompt_jax.models import config as config_lib

_BATCH = {"cb": 8, "agnews": 8, "rte": 8, "dbpedia": 4}


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of fine-tuning. Weights stay float32."""

    model: str = options.option("", "A Hub name or a folder; empty: the run's language model.")
    checkpoints: str = options.option("", "Folder from which an interrupted training goes on; empty: none.")
    steps: int = options.option(0, "Optimizer steps; 0: the paper's for the number of shots.", least=0)
    batch: int = options.option(0, "Rows per step; 0: the paper's for the task.", least=0)
    learning_rate: float = options.option(1e-5, "At the first step; it falls linearly to zero.", least=1e-12)
    weight_decay: float = options.option(0.01, "AdamW's, but of biases and normalisation.", least=0)
    clip: float = options.option(1.0, "The largest norm of the gradient.", least=1e-12)
    dropout: float = options.option(0.1, "Share of activations that are dropped.", least=0, most=0.99)
    max_length: int = options.option(256, "Tokens of a text; more are cut off.", least=1)
    dtype: str = options.option("float32", "Of activations.", choices=config_lib.FLOATS)
    remat: bool = options.option(False, "Recompute activations backwards, to save memory.")
    checkpoint_every: int = options.option(100, "Steps between checkpoints.", least=1)

    def with_published(self, task_name: str, shots: int) -> "Settings":
        """With the paper's steps (for the next larger number of its shots per class) and batch where they are 0 here."""
        steps = 125 if shots <= 64 else 250 if shots <= 256 else 500
        return dataclasses.replace(self, steps=self.steps or steps, batch=self.batch or _BATCH.get(task_name, 16))
