"""Templates: texts with the names of fields in braces; `{{` and `}}` are plain braces.

Unlike in `str.format`, a name may hold any characters but braces, as the columns of exports do: `{user.text}`.
"""

import functools
import re
from collections.abc import Iterable, Mapping

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def names(template: str) -> list[str]:
    """Return the names in braces, in order; raise ValueError if a brace is single."""
    return [name for _, name in _parse(template) if name is not None]


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with a value for each name."""
    return "".join(text if name is None else text + values[name] for text, name in _parse(template))


def quoted(text: str) -> str:
    """Return a template that is this text."""
    return text.replace("{", "{{").replace("}", "}}")


def awkward(fields: Iterable[str]) -> list[str]:
    """Return the names that no template can hold."""
    return [field for field in fields if {*field} & {*"{}"}]


@functools.lru_cache(maxsize=256)
def _parse(template: str) -> tuple[tuple[str, str | None], ...]:
    """Return pairs of a text and the name after it; the last name is None."""
    parts = []
    text = ""
    end = 0
    for token in _TOKEN.finditer(template):
        text += template[end : token.start()]
        end = token.end()
        if token[1] is not None:
            parts.append((text, token[1]))
            text = ""
        elif len(token[0]) == 2:
            text += token[0][0]
        elif token[0] == "{":
            raise ValueError(f"'{{' at character {token.start()} is not closed; a plain brace is written twice")
        else:
            raise ValueError(f"single {token[0]!r} at character {token.start()}: write it twice")
    return (*parts, (text + template[end:], None))
