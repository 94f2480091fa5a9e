"""What the words of a text do for its label: each is left out once, and all these texts are read in one pass."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from knnprompt_jax.tasks.task import Example

MOST = 64  # Parts that a text is taken in: of longer texts, several words at a time.


@dataclasses.dataclass(frozen=True)
class Part:
    """A word of a text, or a few that follow each other.

    Attributes:
      field: the field that it stands in, from `start` to `stop`.
      contribution: the probability of the label, minus what it is for the text without the part.
    """

    field: str
    start: int
    stop: int
    contribution: float = 0.0

    def of(self, fields: Mapping[str, str]) -> str:
        return fields[self.field][self.start : self.stop]


def parts(fields: Mapping[str, str]) -> list[Part]:
    """The words of the texts, which blanks separate, in their order; at most `MOST`, and a few where there are several fields."""
    words = {field: list(re.finditer(r"\S+", text)) for field, text in fields.items()}
    count = math.ceil(sum(map(len, words.values())) / MOST)
    return [
        Part(field, members[at].start(), members[min(at + count, len(members)) - 1].end())
        for field, members in words.items()
        for at in range(0, len(members), count)
    ]


def without(example: Example, every: Sequence[Part]) -> Iterator[Example]:
    """The example without each of the parts."""
    for part in every:
        text = example.fields[part.field]
        before, after = text[: part.start], text[part.stop :]
        left = before + after.lstrip() if after.strip() else before.rstrip()
        yield dataclasses.replace(example, fields={**example.fields, part.field: left})


def of(every: Sequence[Part], share: float, shares_W: np.ndarray) -> tuple[Part, ...]:
    """The parts with what they contribute to the probability `share` of the label, which is `shares_W` without each of them."""
    return tuple(
        dataclasses.replace(part, contribution=share - left)
        for part, left in zip(every, shares_W.tolist(), strict=True)
    )
