"""How to fine-tune: the paper's numbers, and PET's for what the paper does not say."""

import dataclasses

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib

_BATCH = {"cb": 8, "agnews": 8, "rte": 8, "dbpedia": 4}


@dataclasses.dataclass(frozen=True)
class FineTuneConfig:
    """Steps of `batch` rows; texts of at most `max_length` tokens; `dtype` is that of the activations, weights stay float32."""

    steps: int
    batch: int
    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.1
    max_length: int = 256
    dtype: str = "float32"
    remat: bool = False
    checkpoint_every: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "max_length", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise errors.UserError(f"{name}={getattr(self, name)}: at least 1 is needed")
        if not self.learning_rate > 0:
            raise errors.UserError(f"learning_rate={self.learning_rate}: a positive number is needed")
        if not 0 <= self.dropout < 1:
            raise errors.UserError(f"dropout={self.dropout}: choose from 0 to below 1")
        if self.dtype not in config_lib.DTYPES:
            raise errors.UserError(f"dtype={self.dtype!r}: choose from {', '.join(config_lib.DTYPES)}")


def published(task_name: str, shots: int) -> dict[str, int]:
    """The paper's steps and batch for so many train rows a class; between its own numbers of shots, the next larger's steps."""
    steps = 125 if shots <= 64 else 250 if shots <= 256 else 500
    return {"steps": steps, "batch": _BATCH.get(task_name, 16)}
