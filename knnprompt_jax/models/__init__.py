"""Decoders and sentence encoders: their families, weight files, tokenizers and layers."""

import logging

# `transformers` is used for tokenizers, which need no PyTorch: its advice to install it means nothing here.
logging.getLogger("transformers").addFilter(lambda record: "PyTorch was not found" not in record.getMessage())

DTYPES = ("float32", "bfloat16")
"""Dtypes of weights and activations: the reference, and for accelerators."""
