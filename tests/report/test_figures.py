"""Figures: SVG that is safe in a page beside others, with every point on it."""

import pathlib
import re
import xml.etree.ElementTree

import pytest

from knnprompt_jax.report import drawing, figures, names, published, results

pytestmark = pytest.mark.usefixtures("style")


def texts(svg: str) -> list[str]:
    """Return all texts of a well-formed SVG."""
    return [text.strip() for text in xml.etree.ElementTree.fromstring(svg).itertext() if text.strip()]


def test_texts_are_kept_and_nothing_applies_to_the_rest_of_the_page():
    panel = drawing.Panel("<b>$100 & $200</b>", "x", "0.12345 nats")
    panel.axes.plot([1, 2], [0.123456, 2], **drawing.line_style(0))
    panel.set_ticks([0.015625, 0.5])
    assert {"<b>$100 & $200</b>", "0.12345 nats", "0.015625", "0.5"} <= set(texts(panel.svg))
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
    return figures.curves("name", "Caption.", results.frame(records), paper, figures.Plot("m", figures.SHOTS))


def test_regimes_have_panels_of_their_own_beside_their_own_printed_numbers(make_record):
    records = [make_record("few_shot", "sst2", "knn", 8, 1, cell={"regime": each}) for each in ("full", "few-shot")]
    paper = published.of("few_shot")
    figure = curves(records, paper[(paper.method == "knn") & (paper.task == "sst2")])
    (full, few) = map(texts, figure.panels)
    assert "full, SST2" in full and "32" not in full and "few-shot, SST2" in few and "32" in few
    plot = figures.Plot("m", figures.SHOTS, panel=("task", "regime"), average=False)
    figure = figures.curves("name", "Caption.", results.frame(records), published.of(""), plot)
    assert [("SST2, full" in texts(panel), "SST2, few-shot" in texts(panel)) for panel in figure.panels] in (
        [(True, False), (False, True)],
        [(False, True), (True, False)],
    )


def test_a_value_that_a_record_lacks_is_a_dash():
    assert names.text("k", float("nan")) == "–" and names.text("k", 3.0) == "3"


@pytest.mark.parametrize("shots", [(8,), (2, 8)])
def test_a_single_point_has_an_error_bar_instead_of_a_band(make_record, shots):
    records = [
        make_record("few_shot", "trec", "knn", m, seed, cell={"regime": "few-shot"}) for m in shots for seed in (1, 2)
    ]
    (panel,) = curves(records, published.of("few_shot")[:0]).panels
    assert ("LineCollection" in panel, "PolyCollection" in panel or "FillBetween" in panel) == (
        len(shots) == 1,
        len(shots) > 1,
    )


def test_curves_have_a_panel_per_task_and_one_for_the_average(make_record):
    records = [
        make_record("few_shot", task, method, m, 1, truncated_prompts=50 * (m == 8), cell={"regime": "few-shot"})
        for task in ("sst2", "trec")
        for method in ("icl", "knn")
        for m in (2, 8)
    ]
    paper = published.of("few_shot")
    figure = curves(records, paper[paper.method.isin(["icl", "knn"])])
    for panel, title in zip(figure.panels, ["average over tasks", "SST2", "TREC"], strict=True):
        assert {title, "accuracy, %", figures.SHOTS, "2", "8"} <= set(texts(panel))
        assert texts(panel).count("†") == 2, "the paper's own points are not marked"
    assert [name for _, name in figure.legend] == ["In-context learning", "kNN Prompting"]
    assert "one sample standard deviation" in figure.caption and "Hollow marks" in figure.caption
