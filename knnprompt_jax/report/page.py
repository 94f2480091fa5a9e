"""Sections of tables, figures and maps, and the page that holds them: one HTML file that needs nothing else."""

import dataclasses
import importlib.resources
import importlib.util
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence

from knnprompt_jax.common import errors, files, text_tables
from knnprompt_jax.report import drawing, tables
from knnprompt_jax.report import maps as maps_lib
from knnprompt_jax.report.tables import Table

_LIBRARIES = ("jinja2", "matplotlib")
_PAGE = "index.html"
_MARK = '<meta name="generator" content="knnprompt {}">'
_FOLDER = importlib.resources.files("knnprompt_jax") / "report" / "page"


@dataclasses.dataclass(frozen=True)
class Listing:
    """A table of texts."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> str:
        """The table for a terminal."""
        return text_tables.render(self.headers, self.rows)


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        facts: what was run, by title.
        maps: interactive maps.
    """

    name: str
    title: str
    text: str
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    listings: tuple[Listing, ...] = ()
    figures: tuple[drawing.Figure, ...] = ()
    maps: tuple[maps_lib.Map, ...] = ()


def check(output: pathlib.Path, writer: str, alternative: str = "") -> None:
    """Raise UserError if a library is missing, or if the folder cannot be written to or has another command's page.

    Args:
        output: the folder of the page.
        writer: the command that writes it.
        alternative: the end of the message about a missing library.
    """
    if missing := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        names = ", ".join(missing)
        raise errors.UserError(f"the page needs {names}: pip install 'knnprompt_jax[report]'{alternative}")
    files.check_writable(output, folder=True)
    path = output / _PAGE
    with files.refusals(path):
        if path.exists() and _MARK.format(writer) not in path.read_text(encoding="utf-8", errors="replace"):
            raise errors.UserError(f"{path}: not a page of {writer}; choose another --output=, or remove the file")


def write(output: pathlib.Path, writer: str, title: str, text: str, sections: Sequence[Section]) -> pathlib.Path:
    """Write the page of a command, and every table as CSV into tables/; return the path of the page."""
    for section in sections:
        for table in section.tables:
            _write(output / "tables" / f"{table.name}.csv", tables.to_csv(table))
    page = render(title, text, sections).replace("<head>", f"<head>\n{_MARK.format(writer)}", 1)
    _write(output / _PAGE, page)
    return output / _PAGE


def render(title: str, text: str, sections: Sequence[Section]) -> str:
    """Return the page's HTML with every text escaped."""
    import jinja2
    import markupsafe

    numbers = itertools.count()

    def inline(svg: str) -> markupsafe.Markup:
        """Return SVG unescaped, with ids that are unique on the page."""
        prefix = f"s{next(numbers)}-"
        return markupsafe.Markup(re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", svg))

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"inline": inline, "shorten": maps_lib.shorten}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    template = environment.from_string(_read("page.html"))
    return template.render(
        title=title, text=text, sections=sections, size=maps_lib.SIZE, css=_read("page.css"), script=_read("page.js")
    )


def to_text(section: Section) -> str:
    """Return a section's title, facts and our part of its tables for a terminal."""
    facts = [f"{title}: {fact}" for title, fact in section.facts.items()]
    texts = [tables.to_text(table) for table in map(tables.ours_only, section.tables) if table.rows]
    return "\n\n".join(filter(None, [section.title, "\n".join(facts), *texts]))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _write(path: pathlib.Path, text: str) -> None:
    files.write(path, text.encode("utf-8", "replace"))  # JSON may contain lone surrogates, which UTF-8 cannot encode.
