"""The one description of a decoder that GPT-2 and OPT share."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shapes and switches of a decoder-only transformer with learned positions.

    `family` is the Hugging Face `model_type`; sizes give the axes V, D, E, L, H and F, and `num_positions` the context in
    tokens.
    """

    family: str
    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    mlp_width: int
    num_positions: int
    embed_width: int
    position_offset: int = 0
    activation: str = "gelu_new"
    norm_first: bool = True
    final_norm: bool = True
    norm_epsilon: float = 1e-5
    scale_by_layer: bool = False
    scale_by_head: bool = True
    tied_head: bool = True

    @property
    def head_size(self) -> int:
        return self.width // self.num_heads

    @property
    def axes(self) -> dict[str, int]:
        """The sizes of the axes that conversion tables name."""
        return {
            "v": self.vocab_size,
            "m": self.num_positions + self.position_offset,
            "e": self.embed_width,
            "d": self.width,
            "h": self.num_heads,
            "k": self.head_size,
            "f": self.mlp_width,
        }

    @property
    def has_projections(self) -> bool:
        """Whether embeddings are narrower than the blocks (OPT-350m)."""
        return self.embed_width != self.width

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model; a tied head counts once."""
        block = 4 * self.width * (self.width + 1) + 2 * self.width * self.mlp_width + self.mlp_width + 5 * self.width
        tables = self.vocab_size * self.embed_width * (1 if self.tied_head else 2)
        positions = (self.num_positions + self.position_offset) * self.width
        projections = 2 * self.width * self.embed_width if self.has_projections else 0
        return self.num_layers * block + tables + positions + projections + (2 * self.width if self.final_norm else 0)
