"""Drawings: SVG that is safe in a page beside others, and accuracies with a panel per task."""

import pathlib
import re

import pytest

from knnprompt_jax.report import drawing, published, results
from tests.report.conftest import svg_texts

pytestmark = pytest.mark.usefixtures("style")


def test_texts_are_kept_and_nothing_applies_to_the_rest_of_the_page():
    panel = drawing.Panel("<b>$100 & $200</b>", "x", "0.12345 nats")
    panel.axes.plot([1, 2], [0.123456, 2], **drawing.line_style(0))
    panel.set_ticks([0.015625, 0.5])
    assert {"<b>$100 & $200</b>", "0.12345 nats", "0.015625", "0.5"} <= set(svg_texts(panel.svg))
    assert drawing.PALETTE[0] in panel.svg
    assert not re.search(r"<style|<metadata|<!--", panel.svg)


def test_the_page_has_the_palette_of_the_figures():
    """Maps take their colours from page.css, figures from `drawing.PALETTE`."""
    css = (pathlib.Path(drawing.__file__).parent / "page" / "page.css").read_text(encoding="utf-8")
    assert re.findall(r"--c(\d): (#[0-9a-f]{6})", css) == [(f"{i}", color) for i, color in enumerate(drawing.PALETTE)]


@pytest.mark.parametrize("label", ["שלום 中文 😀", "\x00\x1b", "\ud800x", "$x$ \\frac{"])
def test_any_label_is_drawn_without_a_warning(label, recwarn):
    panel = drawing.Panel(label)
    panel.axes.set_xticks([0, 1], [drawing.drawable(label), "b"])
    assert panel.svg.startswith("<svg")
    assert not recwarn.list


def curves(records, paper):
    return drawing.curves("name", "Caption.", results.frame(records), paper, drawing.Plot("m", drawing.SHOTS))


def test_curves_have_a_panel_per_task_and_one_for_the_average(make_record):
    records = [
        make_record("few_shot", task, method, m, 1, cell={"regime": "few-shot"})
        for task in ("sst2", "trec")
        for method in ("icl", "knn")
        for m in (2, 8)
    ]
    paper = published.of("few_shot")
    figure = curves(records, paper[paper.method.isin(["icl", "knn"])])
    for panel, title in zip(figure.panels, ["average over tasks", "SST2", "TREC"], strict=True):
        assert {title, "accuracy, %", drawing.SHOTS, "2", "8"} <= set(svg_texts(panel))
    assert [name for _, name in figure.legend] == ["In-context learning", "kNN Prompting"]
    assert "one sample standard deviation" in figure.caption and "Hollow marks" in figure.caption


def test_heatmaps_show_the_mean_of_each_split(make_record):
    records = [
        make_record("split_strategy", "sst2", "knn", 8, seed, demo_shots=demos, cell={"anchor_shots": 8 - demos})
        for demos in (2, 4)
        for seed in (1, 2)
    ]
    plot = drawing.Plot("anchor_shots", "|A|", line="demo_shots", average=False)
    (panel,) = drawing.heatmaps("name", "Caption.", results.frame(records), published.of(""), plot).panels
    means = [sum(record.accuracy for record in pair) * 50 for pair in (records[:2], records[2:])]
    assert {"SST2", "|A|", "|D|", "2", "4", "6", *(f"{mean:.1f}" for mean in means)} <= set(svg_texts(panel))


def test_boxes_have_a_place_per_m_and_a_colour_per_method(make_record):
    records = [
        make_record("robustness", "sst2", method, m, seed)
        for method in ("icl", "knn")
        for m in (32, 64)
        for seed in (1, 2, 3)
    ]
    plot = drawing.Plot("m", drawing.SHOTS, average=False)
    figure = drawing.boxes("name", "Caption.", results.frame(records), published.of(""), plot)
    (panel,) = figure.panels
    assert {"SST2", "M_T", "32", "64"} <= set(svg_texts(panel)), "in-context learning fills the context"
    assert all(color in panel for color in drawing.PALETTE[:2])
    assert [name for _, name in figure.legend] == ["In-context learning", "kNN Prompting"]
    by_m = drawing.curves("name", "", results.frame(records[-3:]), published.of(""), drawing.Plot("m", "m", "m"))
    assert [name for _, name in by_m.legend] == ["m = 64"]
    assert len({str(drawing.line_style(index)) for index in range(72)}) == 72
