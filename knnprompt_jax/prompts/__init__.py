"""Prompts as tokens with one shared prefix, packed into rows of one static shape."""

from knnprompt_jax import options


class PromptOptions(options.Options):
    """The truncation of prompts and the tokens of label words."""

    truncation: str = options.option(
        "left",
        "Prompts longer than the context: cut their beginning (left, as published) or refuse them (error).",
        choices=("left", "error"),
    )
    label_token: str = options.option(
        "last",
        "Token of each label word that is read: last (released code) or first (our reading of the paper).",
        choices=("last", "first"),
    )
