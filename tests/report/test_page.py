"""The page as HTML: nothing that a text holds can act, and every id is its own."""

import collections
import html.parser
import json
import re

import numpy as np
import pytest

from knnprompt_jax.report import drawing, embedding, page
from knnprompt_jax.report.scores import Score
from knnprompt_jax.report.sections import Listing, Matrix, Section
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
    points = (embedding.Point(HOSTILE, HOSTILE), embedding.Point(HOSTILE, HOSTILE, "b", HOSTILE, ((0, 0.123456),)))
    places = embedding.places(np.arange(6.0).reshape(2, 3))
    shown = embedding.Map("map", HOSTILE, HOSTILE, (HOSTILE, "b"), points, places, other=HOSTILE, cases=(1,))
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


@pytest.fixture(scope="module")
def parsed(rendered) -> Parser:
    parser = Parser()
    parser.feed(rendered)
    return parser


def test_no_text_becomes_an_element(parsed):
    assert parsed.tags["img"] == 0
    assert parsed.tags["script"] == 2  # The map's data and the page's script.


def test_data_in_the_script_comes_back_as_it_was(parsed):
    data = json.loads(parsed.scripts[0])
    assert [point["text"] for point in data["points"]] == [HOSTILE, HOSTILE]
    assert data["points"][1]["neighbours"] == [[0, 0.1235]]
    assert not re.search("[<>&\u2028\u2029]", parsed.scripts[0])


def test_ids_are_unique_and_references_have_a_target(rendered, parsed):
    assert len(parsed.ids) == len(set(parsed.ids)) > 4
    assert set(re.findall(r"url\(#([^)]*)\)", rendered)) <= set(parsed.ids)


def test_needs_nothing_from_elsewhere(rendered, parsed):
    assert not [link for link in parsed.links if re.match(r"\w+:|//", link) and link != "data:,"]
    assert "default-src 'none'" in rendered
    assert "viewport" in rendered


@pytest.mark.parametrize("count", [1, 2, 3, 4, 11])
def test_any_number_of_rows_has_a_map_within_its_frame(count):
    places_N2 = embedding.places(np.random.default_rng(0).normal(size=(count, 5)))
    assert places_N2.shape == (count, 2)
    assert np.all((places_N2 > 0) & (places_N2 < embedding.SIZE))


def test_equal_rows_have_a_map():
    assert np.isfinite(embedding.places(np.ones((11, 5)))).all()


def test_map_keeps_what_is_near_together():
    rng = np.random.default_rng(0)
    places_N2 = embedding.places(np.repeat(9 * rng.normal(size=(3, 6)), 17, axis=0) + rng.normal(size=(51, 6)))
    groups = places_N2.reshape(3, 17, 2)
    centres = groups.mean(1)
    within = np.linalg.norm(groups - centres[:, None], axis=-1).mean()
    between = np.linalg.norm(centres[:, None] - centres[None], axis=-1)[np.triu_indices(3, 1)].mean()
    assert within < between / 2


def test_a_matrix_has_shares_of_its_rows_and_none_in_an_empty_row():
    rows = Matrix("", ("a", "b", "c"), ((1, 1, 2), (0, 0, 0), (0, 7, 0))).rows
    assert [label for label, _ in rows] == ["a", "b", "c"]
    assert [[share for _, share in cells] for _, cells in rows] == [[25, 25, 50], [0, 0, 0], [0, 100, 0]]


def test_a_listing_with_a_long_cell_is_wide():
    assert [Listing("", ("a", "b"), ((("x" * length), "y"),)).is_wide for length in (40, 41)] == [False, True]


def test_long_texts_are_cut_and_say_so():
    assert embedding.shorten("x" * 1_000_000).endswith("… (1,000,000 characters)")
    assert embedding.shorten("x" * 700) == "x" * 700
