"""The page as HTML and its maps: no text becomes active, and every id is unique."""

import collections
import html.parser
import json
import re
import xml.etree.ElementTree

import numpy as np
import pytest

from knnprompt_jax.report import drawing, maps, page
from knnprompt_jax.report.page import Listing, Matrix, Section
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
    return page.render(page.Page(HOSTILE, HOSTILE, [Section("section", HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, **parts)]))


def test_no_text_becomes_active_and_every_id_is_unique():
    points = (maps.Point(HOSTILE, HOSTILE), maps.Point(HOSTILE, HOSTILE, "b", HOSTILE, ((0, 0.123456),)))
    places = maps.places(np.arange(6.0).reshape(2, 3))
    shown = maps.Map(HOSTILE, HOSTILE, (HOSTILE, "b"), points, places, other=HOSTILE, cases=(1,))
    table = Table("table", HOSTILE, (HOSTILE,), (HOSTILE,), (TableRow((HOSTILE,), (Cell(Score(1.0)),)),), HOSTILE)
    with drawing.style():
        panel = drawing.Panel(HOSTILE.replace("\x00", ""))
        panel.axes.plot([0, 1], [0, 1], "o", clip_on=True)
        figure = drawing.Figure("figure", HOSTILE, (panel.svg, panel.svg), drawing.legend({HOSTILE: drawing.look(0)}))
    listing, matrix = Listing(HOSTILE, (HOSTILE,), ((HOSTILE,),)), Matrix(HOSTILE, (HOSTILE, "b"), ((2, 1), (0, 0)))
    rendered = render(tables=(table,), listings=(listing,), matrices=(matrix,), figures=(figure,), maps=(shown,))
    parsed = Parser()
    parsed.feed(rendered)
    assert (parsed.tags["img"], parsed.tags["script"]) == (0, 2)  # The map's data and the page's script.
    data = json.loads(parsed.scripts[0])
    assert [point["text"] for point in data["points"]] == [HOSTILE, HOSTILE]
    assert data["points"][1]["neighbours"] == [[0, 0.1235]]
    assert not re.search("[<>&\u2028\u2029]", parsed.scripts[0])
    assert len(parsed.ids) == len(set(parsed.ids)) > 3
    assert set(re.findall(r"url\(#([^)]*)\)", rendered)) <= set(parsed.ids)
    assert not [link for link in parsed.links if re.match(r"\w+:|//", link) and link != "data:,"]
    assert "default-src 'none'" in rendered and "viewport" in rendered


@pytest.mark.parametrize("count", [1, 2, 3, 4, 11])
def test_any_number_of_rows_has_a_map_within_its_frame(count):
    for features_NE in (np.random.default_rng(0).normal(size=(count, 5)), np.ones((count, 5))):
        places_N2 = maps.places(features_NE)
        assert places_N2.shape == (count, 2)
        assert np.all((places_N2 > 0) & (places_N2 < maps.SIZE))


@pytest.mark.parametrize("count", [2, 8, 11, 150])
def test_points_have_the_mark_and_colour_of_their_label_alone(count):
    labels = tuple(f"label {number}" for number in range(count))
    points = [maps.Point("anchor", label) for label in labels]
    points += [maps.Point("row", label, labels[1], "", ((0, 0.5),)) for label in labels]
    text = render(maps=(maps.Map("", "", labels, tuple(points), np.arange(2.0 * len(points)).reshape(-1, 2)),))
    start = text.index('<svg class="points"')
    svg = text[start : text.index("</svg>", start) + 6]
    drawn = [group for group in xml.etree.ElementTree.fromstring(svg) if "point" in group.get("class").split()]
    marks = [(group[0].get("d"), group.get("style")) for group in drawn]
    assert marks[:count] == marks[count:] and len(set(marks)) == count
    assert len({shape for shape, _ in marks[:8]}) == min(count, 8), "eight classes need no colours"
    kinds = [group.get("class").removeprefix("point ") for group in drawn]
    assert kinds == ["anchor"] * count + ["right" if label == labels[1] else "wrong" for label in labels]


def test_a_matrix_has_shares_of_its_rows_and_none_in_an_empty_row():
    text = render(matrices=(Matrix("", ("a", "b", "c"), ((1, 1, 2), (0, 0, 0), (0, 7, 0))),))
    assert re.findall(r"--share:(\d+)\"", text) == ["25", "25", "50", "0", "0", "0", "0", "100", "0"]


def test_long_texts_are_cut_with_a_mark_and_make_a_listing_wide():
    assert maps.shorten("x" * 1_000_000).endswith("… (1,000,000 characters)")
    assert maps.shorten("x" * 700) == "x" * 700
    assert [Listing("", ("a", "b"), ((("x" * length), "y"),)).is_wide for length in (40, 41)] == [False, True]
