"""SVG that may stand in a page beside others."""

import re
import xml.etree.ElementTree

import pytest

from knnprompt_jax.paper import experiments
from knnprompt_jax.report import curves, distributions, drawing, heatmaps


@pytest.fixture(autouse=True)
def style():
    with drawing.style():
        yield


def texts(svg: str) -> list[str]:
    """All texts of a well-formed SVG."""
    return [text.strip() for text in xml.etree.ElementTree.fromstring(svg).itertext() if text.strip()]


def test_texts_stay_as_they_are_and_colours_are_the_pages():
    panel = drawing.Panel("<b>$100 & $200</b>", "x", "0.12345 nats")
    panel.axes.plot([1, 2], [0.123456, 2], **drawing.look(0).style)
    svg = panel.ticks([0.015625, 0.5]).svg
    assert {"<b>$100 & $200</b>", "0.12345 nats", "1/64", "1/2"} <= set(texts(svg))
    assert "var(--c0)" in svg
    assert "currentColor" in svg
    assert not re.search(r"<style|<metadata|<!--|#01|#0b5cad", svg)


def test_curves_have_a_panel_a_task_and_one_for_the_average(make_record):
    records = [
        make_record(
            "few_shot", task, method, m, seed, truncated_prompts=50 if m == 8 else 0, cell={"regime": "few-shot"}
        )
        for task in ("sst2", "trec")
        for method in ("icl", "knn")
        for m in (2, 8)
        for seed in (1, 2)
    ]
    paper = experiments.get("few_shot").paper(records)
    paper = [number for number in paper if number.method in ("icl", "knn")]
    figure = curves.figure("few_shot", "Caption.", records, curves.Plot("m", curves.SHOTS), paper)
    titles = ["average over tasks", "SST2", "SUBJ", "MPQA", "CR", "MR", "TREC"]
    for panel, title in zip(figure.panels, titles, strict=True):
        ran = {"2", "8", "†"} if title in ("average over tasks", "SST2", "TREC") else {"32"}
        assert {title, "accuracy, %", curves.SHOTS, *ran} <= set(texts(panel))
        assert ("†" in texts(panel)) == ("†" in ran), "what the paper alone has is not cut"
    assert [name for _, name in figure.legend] == ["In-context learning", "kNN Prompting", "guessing"]
    assert "one sample standard deviation" in figure.caption
    assert "Hollow marks" in figure.caption


def test_the_papers_models_have_a_line_each(make_record):
    """Of the figure's two models, numbers at the same m must not hide each other."""
    paper = experiments.get("fine_tuning").paper([])
    knn = [number for number in paper if (number.method, number.task) == ("knn", "trec")]
    records = [make_record("fine_tuning", "trec", "knn", m, 1) for m in (32, 128)]
    lines = []
    for models in ({"gpt2-large"}, {"opt-30b"}, {"gpt2-large", "opt-30b"}):
        shown = [number for number in knn if number.model in models]
        (panel,) = curves.figure("fine_tuning", "", records, curves.Plot("m", curves.SHOTS), shown).panels
        lines.append(len(re.findall("stroke-dasharray", panel)))
    assert lines[0] == lines[1] < lines[2]


def test_an_average_leaves_out_points_that_some_task_lacks(make_record):
    records = [make_record("few_shot", task, "knn", m, 1) for task, m in (("sst2", 2), ("sst2", 8), ("trec", 2))]
    average, *_ = curves.figure("few_shot", "", records, curves.Plot("m", curves.SHOTS)).panels
    assert "8" not in texts(average)


def test_several_models_get_panels_of_their_own(make_record):
    records = [
        make_record("robustness", "trec", "knn", 8, seed, model=model) for seed in (1, 2) for model in ("a", "b")
    ]
    figure = distributions.boxes("robustness", "", records)
    assert [texts(panel)[-1] for panel in figure.panels] == ["a, TREC", "b, TREC"]


def test_heatmap_shows_every_number_once():
    cells = {(1, 2): 61.2, (1, 4): 48.0, (8, 2): 70.4}
    shown = texts(heatmaps.heatmap("title", "x", "y", cells))
    assert [shown.count(f"{value:.1f}") for value in cells.values()] == [1, 1, 1]


@pytest.mark.parametrize("label", ["שלום 中文 😀", "\x00\x1b", "\ud800x", "$x$ \\frac{", "-->", ""])
def test_any_label_is_drawn_without_a_warning(label, recwarn):
    panel = drawing.Panel(label)
    panel.axes.set_xticks([0, 1], [drawing.drawable(label), "b"])
    assert panel.svg.startswith("<svg")
    assert not recwarn.list


def test_histogram_says_the_best_prompt(make_record):
    record = make_record("upper_bound", "trec", "demonstration_upper_bound", 8, 1, candidates=(0.25, 0.5, 0.4375))
    (panel,) = distributions.prompts("upper_bound", "", [record]).panels
    assert "TREC: the best prompt has 50.0 %" in texts(panel)
