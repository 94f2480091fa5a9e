"""Sections of tables, figures and maps, and the page that holds them: one HTML file that needs nothing else."""

import dataclasses
import importlib.resources
import importlib.util
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence

from knnprompt_jax import errors, files
from knnprompt_jax.report import drawing, tables
from knnprompt_jax.report import maps as maps_lib
from knnprompt_jax.report.tables import Table

_LIBRARIES = ("jinja2", "matplotlib")
_FOLDER = importlib.resources.files("knnprompt_jax") / "report" / "page"
_NARROW = 40  # Characters of the longest cell that fits a column on a phone.


@dataclasses.dataclass(frozen=True)
class Listing:
    """A table of texts."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def is_wide(self) -> bool:
        """Whether a cell is too long for a column on a phone."""
        return any(len(cell) > _NARROW for row in self.rows for cell in row)


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Counts of pairs of classes, [row, column]."""

    caption: str
    labels: tuple[str, ...]
    counts_CC: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a page; `facts` describe the runs, `findings` (`accuracies.findings`) open the page, `maps` are interactive."""

    name: str
    title: str
    text: str
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    findings: Sequence[tuple[str, ...]] = ()
    tables: tuple[Table, ...] = ()
    listings: tuple[Listing, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    figures: tuple[drawing.Figure, ...] = ()
    maps: tuple[maps_lib.Map, ...] = ()

    @property
    def verdicts(self) -> list[bool]:
        """Whether each cell with a verdict lies within two standard errors of the paper's."""
        return [verdict for table in self.tables for cell in table.cells if (verdict := cell.within) is not None]


def lacking() -> str:
    """Return why no page can be drawn: a library is missing. Otherwise return an empty text."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    return f"the page needs {', '.join(missing)}: pip install 'knnprompt_jax[report]'" if missing else ""


def folder(output: str, needs_page: bool = True) -> pathlib.Path:
    """Return the folder of a new page.

    Raises:
      UserError: the folder is not writable or lies inside a saved classifier, or a library for pages is missing but needed.
    """
    if needs_page and (reason := lacking()):
        raise errors.UserError(reason)
    place = pathlib.Path(output)
    files.check_writable(place, folder=True)
    return place


def write(output: pathlib.Path, title: str, text: str, sections: Sequence[Section]) -> pathlib.Path:
    """Write index.html, and every table as CSV and Markdown into tables/; return the path of the page."""
    for table in (table for section in sections for table in section.tables):
        _write(output / "tables" / f"{table.name}.csv", tables.to_csv(table))
        _write(output / "tables" / f"{table.name}.md", tables.to_markdown(table))
    _write(output / "index.html", render(title, text, sections))
    return output / "index.html"


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
    html, css, script = ((_FOLDER / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    values = {"title": title, "text": text, "sections": sections, "size": maps_lib.SIZE}
    return environment.from_string(html).render(values, css=css, script=script)


def to_text(section: Section, markdown: bool = False) -> str:
    """Return a section's title, facts and tables for a terminal, or in Markdown."""
    facts = [f"{title}: {fact}" for title, fact in section.facts.items()]
    if markdown:
        facts = [f"- {tables.escape(fact)}" for fact in facts]
    heading, render = (f"## {section.title}", tables.to_markdown) if markdown else (section.title, tables.to_text)
    return "\n\n".join(filter(None, [heading, "\n".join(facts), *map(render, section.tables)]))


def _write(path: pathlib.Path, text: str) -> None:
    files.write(path, text.encode("utf-8", "replace"))  # JSON may contain lone surrogates, which UTF-8 cannot encode.
