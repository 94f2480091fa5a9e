"""Prompts as tokens with one shared prefix, packed into rows of one static shape."""

from knnprompt_jax.common import options


class PromptOptions(options.Options):
    """The tokens of label words."""

    label_token: str = options.option(
        "last",
        "Token of each label word that is read: last (released code) or first (our reading of the paper).",
        choices=("last", "first"),
    )
