"""Drawings: SVG that is safe in a page beside others, and curves with a panel per task."""

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


def test_regimes_have_panels_of_their_own(make_record):
    records = [make_record("few_shot", "sst2", "knn", 8, 1, cell={"regime": each}) for each in ("full", "few-shot")]
    plot = drawing.Plot("m", drawing.SHOTS, panel=("task", "regime"), average=False)
    figure = drawing.curves("name", "Caption.", results.frame(records), published.of(""), plot)
    titles = [
        [title for title in ("SST2, full", "SST2, few-shot") if title in svg_texts(each)] for each in figure.panels
    ]
    assert sorted(titles) == [["SST2, few-shot"], ["SST2, full"]]


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
