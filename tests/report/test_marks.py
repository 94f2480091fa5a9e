"""Marks of a map: classes differ in shape, and where shapes come again, in colour."""

import xml.etree.ElementTree

import numpy as np
import pytest

from knnprompt_jax.report import drawing, embedding, marks, page
from knnprompt_jax.report.sections import Section

LABELS = tuple(f"label {number}" for number in range(11))


@pytest.mark.parametrize("count", [2, 8, 11, 150])
def test_no_two_classes_have_the_same_mark_and_colour(count):
    assert len({(marks.shape(index), marks.colour(index, count)) for index in range(count)}) == count


def test_eight_classes_need_no_colours():
    assert len({marks.shape(index) for index in range(8)}) == 8
    assert marks.shape(8) == marks.shape(0)


def test_points_have_the_shape_of_their_label_and_legend_shows_it():
    points = [embedding.Point("anchor", label) for label in LABELS]
    points += [embedding.Point("row", label, LABELS[3], "", ((0, 0.5),)) for label in LABELS]
    places_N2 = np.arange(2.0 * len(points)).reshape(-1, 2)
    shown = embedding.Map("map", "", "", LABELS, tuple(points), places_N2)
    html = page.render(page.Page("", "", [Section("section", "", "", maps=(shown,))]))
    start = html.index('<svg class="points"')
    svg = html[start : html.index("</svg>", start) + 6]
    drawn = [group for group in xml.etree.ElementTree.fromstring(svg) if "point" in group.get("class").split()]
    assert [group[0].get("d") for group in drawn] == [shown.shape(point.label) for point in points]
    kinds = [group.get("class").removeprefix("point ") for group in drawn]
    assert kinds == ["anchor"] * 11 + ["right" if label == LABELS[3] else "wrong" for label in LABELS]
    assert all(html.count(f'style="color:{shown.colour(label)}"') == 3 for label in LABELS)
    assert [text for _, text in shown.kinds] == [
        "anchor (pale)",
        "test row, right (filled)",
        "test row, wrong (hollow)",
    ]


def test_a_map_without_plain_anchors_has_none_in_its_legend():
    shown = embedding.Map("map", "", "", ("a",), (embedding.Point("", "a", "a"),), np.zeros((1, 2)), row="anchor")
    assert [kind for kind, _ in shown.kinds] == ["right", "wrong"]
    assert shown.colour("a") in {f"var(--c{index})" for index in range(len(drawing.PALETTE))}
