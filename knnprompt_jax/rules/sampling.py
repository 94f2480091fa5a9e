"""An order of rows by a seeded hash of their texts, which a few new rows rarely change."""

import collections
import hashlib
import json
from collections.abc import Sequence

from knnprompt_jax.rules import evidence
from knnprompt_jax.tasks.task import Example


def ranked(rows: Sequence[Example], seed: int) -> list[int]:
    """Return the indices of all rows in the order of a seeded hash of their texts.

    Equal texts have different hashes, by their order among the rows. Labels do not matter.
    """
    digests = []
    earlier: collections.Counter[str] = collections.Counter()
    for row in rows:
        text = json.dumps(dict(row.fields), sort_keys=True)
        digests.append(hashlib.sha256(f"{seed} {earlier[text]} {text}".encode()).digest())
        earlier[text] += 1
    return sorted(range(len(rows)), key=digests.__getitem__)


def sample(rows: Sequence[Example], seed: int) -> list[int]:
    """Return the indices, ascending, of the at most `evidence.LIMIT` rows that come first in `ranked`."""
    return sorted(ranked(rows, seed)[: evidence.LIMIT])
