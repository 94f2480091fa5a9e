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
        given = dict(attributes)
        self.tags[tag] += 1
        self.ids += [given["id"]] if "id" in given else []
        self.links += [value for name, value in attributes if name in ("href", "src")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def rendered() -> str:
    points = (maps.Point(HOSTILE, HOSTILE), maps.Point(HOSTILE, HOSTILE, "b", HOSTILE, ((0, 0.123456),)))
    places = maps.places(np.arange(6.0).reshape(2, 3))
    shown = maps.Map("map", HOSTILE, HOSTILE, (HOSTILE, "b"), points, places, other=HOSTILE, cases=(1,))
    table = Table("table", HOSTILE, (HOSTILE,), (HOSTILE,), (TableRow((HOSTILE,), (Cell(Score(1.0)),)),), HOSTILE)
    with drawing.style():
        panel = drawing.Panel(HOSTILE.replace("\x00", ""))
        panel.axes.plot([0, 1], [0, 1], "o", clip_on=True)
        figure = drawing.Figure("figure", HOSTILE, (panel.svg, panel.svg), drawing.legend({HOSTILE: drawing.look(0)}))
    listing = Listing(HOSTILE, (HOSTILE,), ((HOSTILE,),))
    matrix = Matrix(HOSTILE, (HOSTILE, "b"), ((2, 1), (0, 0)))
    parts = {"tables": (table,), "listings": (listing,), "matrices": (matrix,), "figures": (figure,), "maps": (shown,)}
    section = Section("section", HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, **parts)
    return page.render(page.Page(HOSTILE, HOSTILE, [section], (HOSTILE,), HOSTILE, HOSTILE))


def test_no_text_becomes_active_and_every_id_is_unique(rendered):
    parsed = Parser()
    parsed.feed(rendered)
    assert parsed.tags["img"] == 0
    assert parsed.tags["script"] == 2  # The map's data and the page's script.
    data = json.loads(parsed.scripts[0])
    assert [point["text"] for point in data["points"]] == [HOSTILE, HOSTILE]
    assert data["points"][1]["neighbours"] == [[0, 0.1235]]
    assert not re.search("[<>&\u2028\u2029]", parsed.scripts[0])
    assert len(parsed.ids) == len(set(parsed.ids)) > 4
    assert set(re.findall(r"url\(#([^)]*)\)", rendered)) <= set(parsed.ids)
    assert not [link for link in parsed.links if re.match(r"\w+:|//", link) and link != "data:,"]
    assert "default-src 'none'" in rendered and "viewport" in rendered


@pytest.mark.parametrize("count", [1, 2, 3, 4, 11])
def test_any_number_of_rows_has_a_map_within_its_frame(count):
    for features_NE in (np.random.default_rng(0).normal(size=(count, 5)), np.ones((count, 5))):
        places_N2 = maps.places(features_NE)
        assert places_N2.shape == (count, 2)
        assert np.all((places_N2 > 0) & (places_N2 < maps.SIZE))


def test_a_map_keeps_neighbours_together():
    rng = np.random.default_rng(0)
    places_N2 = maps.places(np.repeat(9 * rng.normal(size=(3, 6)), 17, axis=0) + rng.normal(size=(51, 6)))
    groups = places_N2.reshape(3, 17, 2)
    centres = groups.mean(1)
    within = np.linalg.norm(groups - centres[:, None], axis=-1).mean()
    between = np.linalg.norm(centres[:, None] - centres[None], axis=-1)[np.triu_indices(3, 1)].mean()
    assert within < between / 2


@pytest.mark.parametrize("count", [2, 8, 11, 150])
def test_no_two_classes_have_the_same_mark_and_colour(count):
    labels = tuple(map(str, range(count)))
    shown = maps.Map("map", "", "", labels, (), np.zeros((0, 2)))
    assert len({(shown.shape(label), shown.colour(label)) for label in labels}) == count
    assert len({shown.shape(label) for label in labels[:8]}) == min(count, 8), "eight classes need no colours"


def test_points_have_the_shape_of_their_label():
    labels = tuple(f"label {number}" for number in range(11))
    points = [maps.Point("anchor", label) for label in labels]
    points += [maps.Point("row", label, labels[3], "", ((0, 0.5),)) for label in labels]
    shown = maps.Map("map", "", "", labels, tuple(points), np.arange(2.0 * len(points)).reshape(-1, 2))
    html = page.render(page.Page("", "", [Section("section", "", "", maps=(shown,))]))
    start = html.index('<svg class="points"')
    svg = html[start : html.index("</svg>", start) + 6]
    drawn = [group for group in xml.etree.ElementTree.fromstring(svg) if "point" in group.get("class").split()]
    assert [group[0].get("d") for group in drawn] == [shown.shape(point.label) for point in points]
    kinds = [group.get("class").removeprefix("point ") for group in drawn]
    assert kinds == ["anchor"] * 11 + ["right" if label == labels[3] else "wrong" for label in labels]
    assert [kind for kind, _ in shown.kinds] == ["anchor", "right", "wrong"]


def test_a_matrix_has_shares_of_its_rows_and_none_in_an_empty_row():
    rows = Matrix("", ("a", "b", "c"), ((1, 1, 2), (0, 0, 0), (0, 7, 0))).rows
    assert [[share for _, share in cells] for _, cells in rows] == [[25, 25, 50], [0, 0, 0], [0, 100, 0]]


def test_long_texts_are_cut_with_a_mark_and_make_a_listing_wide():
    assert maps.shorten("x" * 1_000_000).endswith("… (1,000,000 characters)")
    assert maps.shorten("x" * 700) == "x" * 700
    assert [Listing("", ("a", "b"), ((("x" * length), "y"),)).is_wide for length in (40, 41)] == [False, True]
