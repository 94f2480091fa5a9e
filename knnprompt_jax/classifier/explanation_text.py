"""Explanations as text for a terminal, and as HTML in which every text is escaped."""

import html
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knnprompt_jax.classifier.explanation import Explanation, Part

_WIDTH, _PART_WIDTH = 100, 60  # The most characters of a text, and of a part of it.
_MOST = 10  # The most neighbours and parts.
_LEAST = 0.005  # Smaller contributions are not shown.
_FOR, _AGAINST, _PLAIN = "\033[1;32m", "\033[4;31m", "\033[0m"  # Bold green, underlined red.


def to_terminal(explanation: "Explanation", coloured: bool | None = None) -> str:
    """Return lines of bounded length, by default in colours if standard output is a terminal and NO_COLOR is not set."""
    if coloured is None:
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    texts = []
    for part in explanation.parts:
        text = _text(part, explanation)
        if coloured and _matters(part):
            text = f"{_FOR if part.contribution > 0 else _AGAINST}{text}{_PLAIN}"
        texts.append(text)
    words = " ".join(texts)
    lines = [words if coloured else _cut(words, _WIDTH), f"  label {explanation.label}: {_shares(explanation)}"]
    lines += [f"  {_contributions(explanation)}", _heading(explanation)]
    for near in explanation.neighbours[:_MOST]:
        lines.append(f"  anchor {near.id}, label {near.label}, distance {near.distance:z.4f}: {_one_line(near.fields)}")
        if near.reasons:
            lines.append(f"    {', '.join(map(str, near.reasons))}")
    return "\n".join(lines) + _rest(explanation)


def to_html(explanation: "Explanation") -> str:
    """Return a paragraph with marked words, and a table of the neighbours."""
    words = " ".join(_marked(part, explanation) for part in explanation.parts)
    escaped = (str(explanation.label), _shares(explanation), _contributions(explanation), _heading(explanation))
    label, shares, parts, heading = map(html.escape, escaped)
    table = _row("th", ["id", "label", "distance", "text", "largest terms of the distance"])
    for near in explanation.neighbours[:_MOST]:
        reasons = ", ".join(map(str, near.reasons))
        table += _row("td", [near.id, near.label, f"{near.distance:z.4f}", _one_line(near.fields), reasons])
    return (
        f"<p>{words}<br><b>{label}</b>: {shares}<br>{parts}</p><p>{heading}</p><table>{table}</table>"
        f"{html.escape(_rest(explanation))}"
    )


def _shares(explanation: "Explanation") -> str:
    largest = sorted(explanation.shares.items(), key=lambda item: -item[1])[:_MOST]
    return ", ".join(f"{label} {share:.2f}" for label, share in largest if share >= _LEAST)


def _contributions(explanation: "Explanation") -> str:
    """Return the parts with the largest contributions, in words."""
    largest = sorted(explanation.parts, key=lambda part: -abs(part.contribution))[:_MOST]
    listed = [f"{_text(part, explanation)!r} {part.contribution:+.2f}" for part in largest if _matters(part)]
    if not listed:
        return "no single word changes the probability of the label"
    return f"contributions to the probability of {explanation.label}: {', '.join(listed)}"


def _heading(explanation: "Explanation") -> str:
    aside = "" if explanation.has_votes else "; the linear probe decides without them"
    return f"nearest anchors ({explanation.measure}{aside}):"


def _rest(explanation: "Explanation") -> str:
    count = len(explanation.neighbours) - _MOST
    return f"\n  and {count} more" if count > 0 else ""


def _matters(part: "Part") -> bool:
    return abs(part.contribution) >= _LEAST


def _text(part: "Part", explanation: "Explanation") -> str:
    return _cut(_plain(part.of(explanation.fields)), _PART_WIDTH)


def _marked(part: "Part", explanation: "Explanation") -> str:
    """Return the part, green if it supports the label, red and underlined if it opposes it, by the size of its contribution."""
    text = html.escape(_text(part, explanation))
    if not _matters(part):
        return text
    strength = 0.1 + 0.5 * abs(part.contribution) / max(abs(each.contribution) for each in explanation.parts)
    colour = "0,150,70" if part.contribution > 0 else "210,40,30"
    line = "" if part.contribution > 0 else ";text-decoration:underline"
    style = f"background:rgba({colour},{strength:.2f});color:inherit{line}"
    return f'<mark style="{style}" title="{part.contribution:+.2f}">{text}</mark>'


def _row(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _one_line(fields: Mapping[str, str]) -> str:
    return _cut(" | ".join(_plain(value[: 2 * _WIDTH]) for value in fields.values()), _WIDTH)


def _plain(text: str) -> str:
    """Return the text in one line, without characters that act on a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
