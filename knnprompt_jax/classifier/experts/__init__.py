"""Experts that score the classes of a text, and the pool that weighs them: states and texts in, probabilities out."""

from knnprompt_jax.common import errors, options

EXPERTS = ("labels", "means", "knn", "probe", "words", "encoder")
READ_PROMPTS = EXPERTS[:4]


class PoolOptions(options.Options):
    """The experts of a pool."""

    experts: tuple[str, ...] | None = options.option(
        None,
        "Experts of the pool: labels (the label words' probabilities), means (of each class's states), knn (votes of the nearest rows), "
        "probe (ridge regression on states), words (TF-IDF, without the language model), encoder (sentence embeddings). By "
        "default all, encoder only with an encoder.",
        choices=EXPERTS,
        nonempty=True,
    )
    encoder: str = options.option("", "Sentence encoder whose embeddings an expert reads; none by default.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(self.names) & set(READ_PROMPTS):
            raise errors.UserError(
                f"experts={','.join(self.names)}: add one that reads prompts: {', '.join(READ_PROMPTS)}; words without a "
                "language model are the method tfidf: knnprompt compare --methods=tfidf"
            )
        if ("encoder" in self.names) != bool(self.encoder):
            raise errors.UserError(
                f"encoder={self.encoder!r}, experts={','.join(self.names)}: the expert and its model go together"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the experts, in the order of `EXPERTS`."""
        if self.experts is not None:
            return tuple(name for name in EXPERTS if name in self.experts)
        return EXPERTS if self.encoder else EXPERTS[:-1]
