"""The page as HTML: no text becomes active, and every id is unique."""

import collections
import html.parser
import json
import re

import numpy as np

from knnprompt_jax.report import drawing, maps, page
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table, TableRow

HOSTILE = "</script><img src=x onerror=alert(1)>'\"&amp;\u2028\u2029\x00 שלום"


class Parser(html.parser.HTMLParser):
    """Collects tags, ids and the contents of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.ids, self.scripts, self.links = collections.Counter(), [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.ids += [value for name, value in attributes if name == "id"]
        self.links += [value for name, value in attributes if name in ("href", "src")]
        self.scripts += [""] if tag == "script" else []

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def render(**parts):
    return page.render(HOSTILE, HOSTILE, [Section("section", HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, **parts)])


def test_no_text_becomes_active_and_every_id_is_unique():
    points = (maps.Point(HOSTILE, HOSTILE), maps.Point(HOSTILE, HOSTILE, "b", HOSTILE, ((0, 0.123456),)))
    positions_N2 = np.array([[1.0, 2], [3, 4]])
    shown = maps.Map(HOSTILE, HOSTILE, (HOSTILE, "b"), points, positions_N2, other=HOSTILE, cases=(1,))
    table = Table("table", HOSTILE, (HOSTILE,), (HOSTILE,), (TableRow((HOSTILE,), (Cell(Score(1.0)),)),), (HOSTILE,))
    with drawing.style():
        panel = drawing.Panel(HOSTILE.replace("\x00", ""))
        panel.axes.plot([0, 1], [0, 1], "o", clip_on=True)
        key = drawing.legend({HOSTILE: drawing.line_style(0)})
        figure = drawing.Figure("figure", HOSTILE, (panel.svg, panel.svg), key)
    listing = Listing(HOSTILE, (HOSTILE,), ((HOSTILE,),))
    empty = render(listings=(Listing("caption", ("header",), ()),))
    assert "<table" not in empty and "<p>None.</p>" in empty
    rendered = render(tables=(table,), listings=(listing,), figures=(figure,), maps=(shown,))
    parsed = Parser()
    parsed.feed(rendered)
    assert rendered.count('role="img"') == 1
    assert (parsed.tags["img"], parsed.tags["script"]) == (0, 2)  # The map's data and the page's script.
    data = json.loads(parsed.scripts[0])
    assert [point["text"] for point in data["points"]] == [HOSTILE, HOSTILE]
    assert data["points"][1]["neighbours"] == [[0, 0.1235]]
    assert not re.search("[<>&\u2028\u2029]", parsed.scripts[0])
    assert len(parsed.ids) == len(set(parsed.ids)) > 3
    assert set(re.findall(r"url\(#([^)]*)\)", rendered)) <= set(parsed.ids)
    assert not [link for link in parsed.links if re.match(r"\w+:|//", link) and link != "data:,"]
    assert rendered.count("data-label=") == 2 and re.findall('data-kind="(.*?)"', rendered) == ["anchor", "wrong"]
    assert "default-src 'none'" in rendered and "viewport" in rendered
