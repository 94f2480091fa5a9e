"""Experts that score the classes of a text, and the pool that weighs them: states and texts in, probabilities out."""

from knnprompt_jax.common import errors, options

EXPERTS = ("labels", "means", "knn", "probe", "words", "encoder")
READ_PROMPTS = EXPERTS[:4]


class PoolOptions(options.Options):
    """The experts of a pool."""

    experts: tuple[str, ...] | None = options.option(
        None,
        "Experts of the pool (docs/api.md); by default all, encoder if one is given.",
        choices=EXPERTS,
        nonempty=True,
    )
    encoder: str = options.option("", "Sentence encoder whose embeddings an expert reads; none by default.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(self.names) & set(READ_PROMPTS):
            choices = f"{', '.join(READ_PROMPTS)} (words alone: compare --methods=tfidf)"
            raise errors.UserError(f"experts={','.join(self.names)}: add one that reads prompts: {choices}")
        if ("encoder" in self.names) != bool(self.encoder):
            names = ",".join(self.names)
            raise errors.UserError(f"encoder={self.encoder!r}, experts={names}: the expert and its model go together")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the experts, in the order of `EXPERTS`."""
        if self.experts is not None:
            return tuple(name for name in EXPERTS if name in self.experts)
        return EXPERTS if self.encoder else EXPERTS[:-1]
