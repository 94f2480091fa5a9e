"""Options of the model."""

from knnprompt_jax.models import config
from knnprompt_jax.settings import models


def test_the_options_offer_every_dtype_that_a_decoder_has():
    """`settings` imports nothing slow, so it repeats the names of the dtypes."""
    assert tuple(config.DTYPES) == models.DTYPES
