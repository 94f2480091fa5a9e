"""Figures: a panel per task, with every point on it."""

import pytest

from knnprompt_jax.report import figures, published, results
from tests.report.conftest import svg_texts

pytestmark = pytest.mark.usefixtures("style")


def curves(records, paper):
    return figures.curves("name", "Caption.", results.frame(records), paper, figures.Plot("m", figures.SHOTS))


def test_regimes_have_panels_of_their_own(make_record):
    records = [make_record("few_shot", "sst2", "knn", 8, 1, cell={"regime": each}) for each in ("full", "few-shot")]
    plot = figures.Plot("m", figures.SHOTS, panel=("task", "regime"), average=False)
    figure = figures.curves("name", "Caption.", results.frame(records), published.of(""), plot)
    titles = [
        [title for title in ("SST2, full", "SST2, few-shot") if title in svg_texts(each)] for each in figure.panels
    ]
    assert sorted(titles) == [["SST2, few-shot"], ["SST2, full"]]


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
        assert {title, "accuracy, %", figures.SHOTS, "2", "8"} <= set(svg_texts(panel))
        assert svg_texts(panel).count("†") == 2, "the paper's own points are not marked"
    assert [name for _, name in figure.legend] == ["In-context learning", "kNN Prompting"]
    assert "one sample standard deviation" in figure.caption and "Hollow marks" in figure.caption
