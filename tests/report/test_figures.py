"""Figures: SVG that is safe in a page beside others, with every point on it."""

import re
import xml.etree.ElementTree

import pytest

from knnprompt_jax.paper import experiments
from knnprompt_jax.paper.experiments import data_scaling
from knnprompt_jax.report import drawing, figures, published, results

pytestmark = pytest.mark.usefixtures("style")


def texts(svg: str) -> list[str]:
    """Return all texts of a well-formed SVG."""
    return [text.strip() for text in xml.etree.ElementTree.fromstring(svg).itertext() if text.strip()]


def test_texts_are_kept_and_colours_are_the_pages():
    panel = drawing.Panel("<b>$100 & $200</b>", "x", "0.12345 nats")
    panel.axes.plot([1, 2], [0.123456, 2], **drawing.look(0))
    panel.ticks([0.015625, 0.5])
    assert {"<b>$100 & $200</b>", "0.12345 nats", "0.015625", "0.5"} <= set(texts(panel.svg))
    assert "var(--c0)" in panel.svg and "currentColor" in panel.svg
    assert not re.search(r"<style|<metadata|<!--|#01|#0b5cad", panel.svg)


@pytest.mark.parametrize("label", ["שלום 中文 😀", "\x00\x1b", "\ud800x", "$x$ \\frac{"])
def test_any_label_is_drawn_without_a_warning(label, recwarn):
    panel = drawing.Panel(label)
    panel.axes.set_xticks([0, 1], [drawing.drawable(label), "b"])
    assert panel.svg.startswith("<svg")
    assert not recwarn.list


def curves(records, paper):
    return figures.curves("name", "Caption.", results.frame(records), paper, figures.Plot("m", figures.SHOTS))


def test_curves_have_a_panel_per_task_and_one_for_the_average(make_record):
    records = [
        make_record("few_shot", task, method, m, 1, truncated_prompts=50 * (m == 8), cell={"regime": "few-shot"})
        for task in ("sst2", "trec")
        for method in ("icl", "knn")
        for m in (2, 8)
    ]
    paper = experiments.EXPERIMENTS["few_shot"].paper(results.frame(records))
    figure = curves(records, paper[paper.method.isin(["icl", "knn"])])
    titles = ["average over tasks", "SST2", "SUBJ", "MPQA", "CR", "MR", "TREC"]
    for panel, title in zip(figure.panels, titles, strict=True):
        ran = {"2", "8", "†"} if title in ("average over tasks", "SST2", "TREC") else {"32"}
        assert {title, "accuracy, %", figures.SHOTS, *ran} <= set(texts(panel))
        assert ("†" in texts(panel)) == ("†" in ran), "the paper's own points are not marked"
    assert [name for _, name in figure.legend] == ["In-context learning", "kNN Prompting"]
    assert "one sample standard deviation" in figure.caption and "Hollow marks" in figure.caption


def test_each_model_of_the_paper_has_a_line(make_record):
    """Numbers of two models at the same m must not hide each other."""
    paper = experiments.EXPERIMENTS["fine_tuning"].paper(results.frame([]))
    knn = paper[(paper.method == "knn") & (paper.task == "trec")]
    records = [make_record("fine_tuning", "trec", "knn", m, 1) for m in (32, 128)]
    lines = []
    for models in (["gpt2-large"], ["opt-30b"], ["gpt2-large", "opt-30b"]):
        (panel,) = curves(records, knn[knn.model.isin(models)]).panels
        lines.append(len(re.findall("stroke-dasharray", panel)))
    assert lines[0] == lines[1] < lines[2]


def test_an_average_leaves_out_points_that_a_task_lacks(make_record):
    records = [make_record("few_shot", task, "knn", m, 1) for task, m in (("sst2", 2), ("sst2", 8), ("trec", 2))]
    assert "8" not in texts(curves(records, published.empty()).panels[0])


def test_several_models_get_panels_of_their_own(make_record):
    records = [make_record("robustness", "trec", "knn", 8, seed, model=model) for seed in (1, 2) for model in "ab"]
    figure = figures.boxes("robustness", "", results.frame(records), published.empty())
    assert [texts(panel)[-1] for panel in figure.panels] == ["a, TREC", "b, TREC"]


def test_a_heatmap_shows_every_number_once(make_record):
    accuracies = {(2, 1): 0.612, (2, 8): 0.704, (4, 1): 0.48}
    records = [
        make_record("", "mr", "knn", 9, 1, demo_shots=demo, cell={"anchor_shots": anchors}, accuracy=accuracy)
        for (demo, anchors), accuracy in accuracies.items()
    ]
    (panel,) = figures.heatmaps("", "", results.frame(records), published.empty()).panels
    assert [texts(panel).count(value) for value in ("61.2", "48.0", "70.4", "nan")] == [1, 1, 1, 0]


def test_a_law_is_drawn_beside_the_errors(make_record):
    records = [make_record("", "mr", "knn", m, 1) for m in (8, 32, 128)]
    plot = figures.Plot("m", figures.SHOTS, law=data_scaling.fit_power_law)
    (panel,) = figures.curves("", "", results.frame(records), published.empty(), plot).panels
    assert "error, %" in texts(panel) and "accuracy, %" not in texts(panel)
