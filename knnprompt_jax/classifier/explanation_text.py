"""Explanations as text for a terminal, and as HTML in which every text is escaped."""

import html
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from knnprompt_jax.classifier.explanation import Explanation

_WIDTH, _PART_WIDTH = 100, 60  # The most characters of a text, and of a part of it.
_MOST = 10  # The most neighbours and parts.
_LEAST = 0.005  # Smaller contributions are not shown.
_FOR, _AGAINST, _PLAIN = "\033[1;32m", "\033[4;31m", "\033[0m"  # Bold green, underlined red.


def to_terminal(explanation: "Explanation", coloured: bool | None = None) -> str:
    """Return lines of bounded length, by default in colours if standard output is a terminal and NO_COLOR is not set."""
    if coloured is None:
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    if not coloured:
        words, *lines = _lines(explanation, lambda text, contribution: text)
        return "\n".join([_cut(words, _WIDTH), *lines])
    return "\n".join(_lines(explanation, lambda text, share: f"{_FOR if share > 0 else _AGAINST}{text}{_PLAIN}"))


def to_html(explanation: "Explanation") -> str:
    """Return the lines with words for the label marked green, and words against it red and underlined."""

    def mark(text: str, contribution: float) -> str:
        look = "rgba(0,150,70,0.4)" if contribution > 0 else "rgba(210,40,30,0.4);text-decoration:underline"
        return f'<mark style="color:inherit;background:{look}" title="{contribution:+.2f}">{text}</mark>'

    return f'<pre style="white-space:pre-wrap">{"<br>".join(_lines(explanation, mark, html.escape))}</pre>'


def _lines(
    explanation: "Explanation", mark: Callable[[str, float], str], escape: Callable[[str], str] = str
) -> list[str]:
    """Return the words, then the probabilities, the largest contributions, and the neighbours.

    Args:
      mark: marks an escaped word with a contribution.
    """
    texts = [_cut(_plain(part.of(explanation.fields)), _PART_WIDTH) for part in explanation.parts]
    marked, listed = [], []
    for text, part in zip(texts, explanation.parts, strict=True):
        matters = abs(part.contribution) >= _LEAST
        marked.append(mark(escape(text), part.contribution) if matters else escape(text))
        if matters:
            listed.append((part.contribution, f"{text!r} {part.contribution:+.2f}"))
    largest = [words for _, words in sorted(listed, key=lambda item: -abs(item[0]))[:_MOST]]
    contributions = "no single word changes the probability of the label"
    if largest:
        contributions = f"contributions to the probability of {explanation.label}: {', '.join(largest)}"
    classes = sorted(explanation.shares.items(), key=lambda item: -item[1])[:_MOST]
    shares = ", ".join(f"{label} {share:.2f}" for label, share in classes if share >= _LEAST)
    aside = "" if explanation.has_votes else "; the linear probe decides without them"
    lines = [f"  label {explanation.label}: {shares}", f"  {contributions}"]
    lines.append(f"nearest anchors ({explanation.measure}{aside}):")
    for near in explanation.neighbours[:_MOST]:
        lines.append(f"  anchor {near.id}, label {near.label}, distance {near.distance:z.4f}: {_one_line(near.fields)}")
        if near.reasons:
            lines.append(f"    {', '.join(map(str, near.reasons))}")
    if len(explanation.neighbours) > _MOST:
        lines.append(f"  and {len(explanation.neighbours) - _MOST} more")
    return [" ".join(marked), *map(escape, lines)]


def _one_line(fields: Mapping[str, str]) -> str:
    return _cut(" | ".join(_plain(value[: 2 * _WIDTH]) for value in fields.values()), _WIDTH)


def _plain(text: str) -> str:
    """Return the text in one line, without characters that act on a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
