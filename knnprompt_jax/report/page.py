"""Sections → one page that needs nothing else: styles, script, figures and data stand in it."""

import dataclasses
import importlib.resources
import importlib.util
import itertools
import pathlib
import re
from collections.abc import Callable, Sequence

from knnprompt_jax import errors, files
from knnprompt_jax.report import embedding, tables
from knnprompt_jax.report.sections import Section

_LIBRARIES = {"jinja2": "jinja2", "matplotlib": "matplotlib", "sklearn": "scikit-learn"}
_FOLDER = importlib.resources.files("knnprompt_jax") / "report" / "page"


@dataclasses.dataclass(frozen=True)
class Page:
    """`counts` are what the contents say behind each section's title, `note` what stands below them."""

    title: str
    text: str
    sections: Sequence[Section]
    counts: Sequence[str] = ()
    note: str = ""
    footer: str = "Made by knnprompt_jax."


def render(page: Page) -> str:
    """The page's HTML; every text in it is escaped."""
    import jinja2
    import markupsafe

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "inline": _inliner(),
        "script_json": lambda value: markupsafe.Markup(embedding.script_json(value)),
        "shorten": embedding.shorten,
    }
    contents = list(zip(page.sections, page.counts or [""] * len(page.sections), strict=True))
    return environment.from_string(_read("page.html")).render(
        **{field.name: getattr(page, field.name) for field in dataclasses.fields(page)},
        contents=contents,
        size=embedding.SIZE,
        css=_read("page.css"),
        script=_read("page.js"),
    )


def folder(output: str) -> pathlib.Path:
    """The folder to write a page to; raises UserError where it cannot be written to, or where a library that draws is missing."""
    if missing := [name for module, name in _LIBRARIES.items() if importlib.util.find_spec(module) is None]:
        raise errors.UserError(f"the page needs {', '.join(missing)}: pip install -e '.[report]'")
    place = pathlib.Path(output)
    files.check_writable(place, folder=True)
    return place


def write(page: Page, output: pathlib.Path) -> pathlib.Path:
    """Writes index.html, and every table as CSV and Markdown into tables/; returns where the page is."""
    output.mkdir(parents=True, exist_ok=True)
    for table in (table for section in page.sections for table in section.tables):
        (output / "tables").mkdir(exist_ok=True)
        _write(output / "tables" / f"{table.name}.csv", tables.to_csv(table))
        _write(output / "tables" / f"{table.name}.md", tables.to_markdown(table))
    _write(output / "index.html", render(page))
    return output / "index.html"


def _write(path: pathlib.Path, text: str) -> None:
    with files.new_file(path) as unfinished:
        # A lone surrogate, which JSON may hold, is no character of any file.
        unfinished.write_text(text, encoding="utf-8", errors="replace")


def _inliner() -> Callable[[str], str]:
    """A filter that puts SVG into the page as it is, with ids that no other SVG of the page has."""
    import markupsafe

    numbers = itertools.count()

    def inline(svg: str) -> str:
        prefix = f"s{next(numbers)}-"
        return markupsafe.Markup(re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", svg))

    return inline


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
