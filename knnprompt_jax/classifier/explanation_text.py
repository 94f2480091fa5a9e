"""Explanations for people: in a terminal, and as HTML in which every text is escaped."""

import html
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from knnprompt_jax.classifier.contributions import Part

if TYPE_CHECKING:
    from knnprompt_jax.classifier.explanation import Explanation, Neighbour

_WIDTH, _PART_WIDTH = 100, 60  # Characters of a text, and of a part of it.
_SHOWN = 10  # Neighbours and parts.
_LEAST = 0.005  # Contributions below this are not shown.
_FOR, _AGAINST, _PLAIN = "\033[1;32m", "\033[4;31m", "\033[0m"  # Bold green, underlined red.


def to_terminal(told: "Explanation", coloured: bool | None = None) -> str:
    """Lines of bounded length; `coloured` by default where standard output is a terminal and NO_COLOR is not set."""
    if coloured is None:
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = [" ".join(_coloured(part, told) if coloured else _read(part, told) for part in told.parts)]
    lines[0] = lines[0] if coloured else _cut(lines[0], _WIDTH)
    lines += [f"  label {told.label}: {_shares(told)}", f"  {_told_parts(told)}", _heading(told)]
    for near in told.neighbours[:_SHOWN]:
        lines.append(f"  anchor {near.id}, label {near.label}, distance {near.distance:z.4f}: {_short(near.fields)}")
        if near.reasons:
            lines.append(f"    {', '.join(map(str, near.reasons))}")
    return "\n".join([*lines, *_more(told.neighbours)])


def to_html(told: "Explanation") -> str:
    """A paragraph in which the words are marked, and a table of the neighbours."""
    words = " ".join(_marked(part, told) for part in told.parts)
    label, shares, parts, heading = (
        html.escape(text) for text in (str(told.label), _shares(told), _told_parts(told), _heading(told))
    )
    table = _row("th", ["id", "label", "distance", "text", "largest parts of the distance"])
    for near in told.neighbours[:_SHOWN]:
        reasons = ", ".join(map(str, near.reasons))
        table += _row("td", [near.id, near.label, f"{near.distance:z.4f}", _short(near.fields), reasons])
    more = "".join(html.escape(line) for line in _more(told.neighbours))
    return f"<p>{words}<br><b>{label}</b>: {shares}<br>{parts}</p><p>{heading}</p><table>{table}</table>{more}"


def _shares(told: "Explanation") -> str:
    largest = sorted(told.shares.items(), key=lambda item: -item[1])[:_SHOWN]
    return ", ".join(f"{label} {share:.2f}" for label, share in largest if share >= _LEAST)


def _told_parts(told: "Explanation") -> str:
    """The parts that move the label's probability most, in words."""
    largest = sorted(told.parts, key=lambda part: -abs(part.contribution))[:_SHOWN]
    moving = [f"{_read(part, told)!r} {part.contribution:+.2f}" for part in largest if _moves(part)]
    if not moving:
        return "no word alone changes the probability of the label"
    return f"what a word adds to the probability of {told.label}: {', '.join(moving)}"


def _heading(told: "Explanation") -> str:
    aside = "" if told.voted else "; the linear probe, which they do not vote in, decides"
    return f"nearest anchors ({told.measure}{aside}):"


def _more(neighbours: Sequence["Neighbour"]) -> Iterator[str]:
    if len(neighbours) > _SHOWN:
        yield f"  and {len(neighbours) - _SHOWN} more"


def _moves(part: Part) -> bool:
    return abs(part.contribution) >= _LEAST


def _read(part: Part, told: "Explanation") -> str:
    return _cut(_plain(part.of(told.fields)), _PART_WIDTH)


def _coloured(part: Part, told: "Explanation") -> str:
    text = _read(part, told)
    return f"{_FOR if part.contribution > 0 else _AGAINST}{text}{_PLAIN}" if _moves(part) else text


def _marked(part: Part, told: "Explanation") -> str:
    """The part, green where it speaks for the label and red and underlined where it speaks against it, as strongly as it does."""
    text = html.escape(_read(part, told))
    if not _moves(part):
        return text
    strength = 0.1 + 0.5 * abs(part.contribution) / max(abs(each.contribution) for each in told.parts)
    colour = "0,150,70" if part.contribution > 0 else "210,40,30"
    line = "" if part.contribution > 0 else ";text-decoration:underline"
    style = f"background:rgba({colour},{strength:.2f});color:inherit{line}"
    return f'<mark style="{style}" title="{part.contribution:+.2f}">{text}</mark>'


def _row(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _short(fields: Mapping[str, str]) -> str:
    """The texts in one line of bounded length."""
    return _cut(" | ".join(_plain(value[: 2 * _WIDTH]) for value in fields.values()), _WIDTH)


def _plain(text: str) -> str:
    """The text in one line, without characters that act on a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
