"""Tables of accuracies beside the paper's, and paired differences."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from knnprompt_jax.report import accuracies, figures, published, results
from knnprompt_jax.report.results import Score

FEW = {"regime": "few-shot"}


def build(records, name="few_shot", axes=("m", "method"), paper=None):
    ours = results.frame(records)
    paper = published.of(name) if paper is None else paper
    return accuracies.build(name, ours, axes, "caption", paper)


def row(table, *headers):
    (found,) = (row for row in table.rows if row.headers == headers)
    return dict(zip(table.columns, found.cells, strict=True))


def test_a_cell_is_the_mean_over_seeds_beside_the_papers(make_record):
    records = [make_record("few_shot", "trec", "knn", 8, seed, cell=FEW) for seed in (1, 2, 3)]
    table = build(records)
    cell = row(table, "8", "kNN Prompting")["TREC"]
    expected = [100 * np.mean(np.array(record.predicted) == np.array(record.true)) for record in records]
    assert (cell.ours.mean, cell.ours.std) == pytest.approx((np.mean(expected), np.std(expected, ddof=1)))
    assert (cell.paper, cell.comparable) == (Score(63.7, 5.5, 10), True)
    unrun = row(table, "32", "Noisy channel")
    assert table.columns[:6] == ("TREC", "SST2", "SUBJ", "MPQA", "CR", "MR") and len(table.rows) == 25
    assert unrun["MR"].ours is None and unrun["average"].paper_text
    assert any("10 seeds" in note for note in table.notes)


def test_another_model_is_a_reference_without_a_difference(make_record):
    table = build([make_record("few_shot", "trec", "knn", 8, seed, model="tiny", cell=FEW) for seed in (1, 2)])
    cell = row(table, "8", "kNN Prompting")["TREC"]
    assert cell.paper == Score(63.7, 5.5, 10) and cell.difference is None
    assert "gpt2-xl (1.5B)'s: a reference only" in table.notes[0]


@pytest.mark.parametrize(
    ("fields", "signs"),
    [
        ([{"prompts": 100, "truncated_prompts": 6}], "†"),
        ([{"prompts": 100, "truncated_prompts": 9}, {"prompts": 100}], ""),  # The share is of all seeds' prompts.
        ([{"note": "re-uses in-context learning: |D| = m"}], "‡"),
    ],
)
def test_truncated_and_reused_cells_are_marked_and_explained(make_record, fields, signs):
    records = [make_record("few_shot", "mr", "knn", 8, seed, **given) for seed, given in enumerate(fields)]
    table = build(records, axes=("m",), paper=published.of(""))
    assert table.signs(table.rows[0].cells[0]) == signs
    assert [note[0] for note in table.footnotes] == list(signs)


def test_the_papers_marks_of_truncated_prompts_are_shown():
    table = build([])
    marked = [cell.paper_text for cell in table.cells if cell.paper_text.endswith("(†)")]
    assert len(marked) == 27 and row(table, "16", "In-context learning")["SUBJ"].paper_text == "75.5 ± 11.4 (†)"
    assert any("(†)" in note for note in table.notes)
    assert not any("(†)" in note for note in build([], "distance", ("method",)).notes)


@pytest.mark.parametrize(
    ("printed", "ran", "mean"),
    [
        (["cr"], ["cr", "mr"], None),
        (published.tables()["max_shots"]["tasks"], ["cr", "mr"], (86.7 + 84.4) / 2),
        (published.tables()["max_shots"]["tasks"], ["cr"], None),
    ],
)
def test_our_average_stands_beside_the_papers_over_the_same_tasks(make_record, printed, ran, mean):
    """The data-scaling table prints the average of ten tasks."""
    numbers, tasks = published.of("data_scaling"), [task.lower() for task in printed]
    numbers = numbers[(numbers.m == 1024) & (numbers.model == "gpt2-xl") & (numbers.method == "knn")]
    records = [make_record("upper_bound", task, "knn", 1024, 1) for task in ran]
    table = build(records, "upper_bound", ("method",), numbers[numbers.task.isin([*tasks, "average"])])
    cells = row(table, "kNN Prompting")
    whole, own = cells["average"], cells.get("average of the tasks run")
    assert whole.paper.mean == numbers[numbers.task == "average"].score.item().mean and whole.ours is None
    assert whole.marks == (("the average over 10 tasks",) if printed == ["cr"] else ())
    assert (own is None) == (len(ran) == 1), "one task has no average"
    if own:
        ours = np.mean([record.accuracy for record in records])
        assert own.ours == Score(pytest.approx(100 * ours), None, 1, "2 tasks")
        assert (own.paper and own.paper.mean, own.difference is None) == (mean and pytest.approx(mean), mean is None)


def made(make_record, method, seed, right, m=8, task="mr", true=("0",) * 20):
    """Return a record with the first `right` of 20 rows right."""
    predicted = tuple("0" if row < right else "1" for row in range(20))
    record = make_record("few_shot", task, method, m, seed, cell={"regime": "full"})
    return dataclasses.replace(record, predicted=predicted, true=true, accuracy=right / 20)


def paired(records):
    return accuracies.paired("few_shot", results.frame(records), ("m", "method"))


def test_differences_are_of_the_seeds_that_both_have(make_record):
    records = [made(make_record, "knn", seed, right) for seed, right in ((1, 15), (2, 17), (3, 18), (4, 20))]
    records += [made(make_record, "icl", seed, right, m=4) for seed, right in ((1, 11), (2, 11), (3, 13), (5, 1))]
    table = paired(records)
    ((cell,),) = (row.cells for row in table.rows)
    assert table.rows[0].headers == ("8", "In-context learning") and table.headers == ("m", "against")
    assert (cell.ours.mean, cell.ours.std, cell.ours.count) == pytest.approx((25, 5, 3))
    # t = 25 / (5 / sqrt 3) = 8.7 with two degrees of freedom: p = 0.013.
    assert cell.marks == (accuracies.SIGNIFICANT,)
    assert accuracies.p_value([20, 30, 25]) == pytest.approx(stats.ttest_rel([75, 85, 90], [55, 55, 65]).pvalue)


def test_equal_differences_are_tested_over_the_rows_of_all_seeds(make_record):
    records = [made(make_record, "knn", seed, 10 + seed) for seed in (1, 2)]
    for wrong, p in ((3, 2 / 2**6), (2, 2 / 2**4), (0, 1)):  # 2 × `wrong` rows are right with kNN Prompting alone.
        others = [made(make_record, "icl", seed, 10 + seed - wrong, m=4) for seed in (1, 2)]
        pairs = results.frame(records).merge(results.frame(others), on="seed", suffixes=("", "_other"))
        pairs["true"] = pairs.true_other
        assert accuracies.p_value([5 * wrong] * 2, pairs) == pytest.approx(p)
        ((cell,),) = (row.cells for row in paired([*records, *others]).rows)
        assert (accuracies.SIGNIFICANT in cell.marks) == (p < 0.05)


def test_a_method_with_a_model_of_its_own_is_compared_with_every_model(make_record):
    records = [
        dataclasses.replace(made(make_record, method, seed, 11), model=model)
        for method, model in (("knn", "gpt2-xl"), ("knn", "tiny"), ("fine_tuning_bert", "bert-large-uncased"))
        for seed in (1, 2)
    ]
    table = accuracies.paired("low_resource", results.frame(records), ("model", "m", "method"))
    assert [row.headers[-1] for row in table.rows] == ["Fine-tuning, BERT-large"] * 2


def test_a_pair_has_equal_rows_and_the_ms_of_both(make_record):
    assert not paired([made(make_record, "knn", 1, 15), made(make_record, "icl", 1, 11, true=("1",) * 20)]).rows
    records = [made(make_record, "knn", 1, 15, m=m) for m in (8, 16)]
    records += [made(make_record, "knn_l2", 1, 11, m=16), made(make_record, "icl", 1, 11, m=4)]
    icl, l2 = "In-context learning", "kNN, L2 of hidden states"
    assert [row.headers for row in paired(records).rows] == [("8", icl), ("16", icl), ("16", l2)]
    # Seven rows are right with kNN Prompting only: p = 2 · 0.5⁷.
    cells = [paired([made(make_record, "knn", 1, right), made(make_record, "icl", 1, 8)]).cells for right in (15, 13)]
    assert [cell.marks for (cell,) in cells] == [(accuracies.SIGNIFICANT,), ()]


def test_a_pair_has_equal_regimes(make_record):
    """In-context learning with M_T demonstrations is compared at every m, but not with few-shot runs."""
    few = [dataclasses.replace(made(make_record, "knn", seed, 12), cell=FEW) for seed in (1, 2)]
    few += [dataclasses.replace(made(make_record, "icl", seed, 18), cell=FEW) for seed in (1, 2)]
    full = [made(make_record, "icl", seed, 10 - seed, m=4) for seed in (1, 2)]
    (cell,) = paired([*few, *full]).cells
    assert cell.ours == Score(pytest.approx(-30), pytest.approx(0), 2)


def test_findings_are_at_the_largest_m_and_averages_over_a_models_own_tasks(make_record):
    records = [
        made(make_record, "knn", seed, 12 + seed, m=m, task=task)
        for seed in (1, 2)
        for m in (8, 16)
        for task in ("mr", "cr")
    ]
    records += [made(make_record, "icl", seed, 2 * seed, m=4, task=task) for seed in (1, 2) for task in ("mr", "cr")]
    records += [made(make_record, "knn_l2", seed, 17 - seed, m=16, task="mr") for seed in (1, 2)]
    other = [dataclasses.replace(each, model="tiny") for each in records if each.task == "mr"]
    table = accuracies.paired("few_shot", results.frame([*records, *other]), ("model", "m", "method"))
    run = "m = 16; 2 demonstrations per class; KL(anchor ‖ test)"
    assert list(table.findings) == [
        (f"gpt2-xl (1.5B); {run}; 2 tasks", "In-context learning +52.5", "–", "–"),
        (f"the tiny model; {run}; MR", "In-context learning +52.5", "–", "kNN, L2 of hidden states −10.0"),
    ]
    assert [row.cells[-1].text for row in table.rows][-1] == "−10.0 ± 7.1 (1 task)"


@pytest.mark.parametrize(
    ("records", "rows"),
    [
        ((("knn", "full", 4), ("knn", "few-shot", 12)), {("full",): 27.5, ("few-shot",): 67.5}),
        ((("knn", "full", 4), ("knn_l2", "full", 12)), {("kNN Prompting",): 27.5, ("kNN, L2 of hidden states",): 67.5}),
    ],
)
def test_records_of_other_regimes_or_methods_share_no_row(make_record, records, rows):
    """Right are 4 or 12 of 20 rows, and a row more with each seed."""
    records = [
        dataclasses.replace(made(make_record, method, seed, right + seed), cell={"regime": regime})
        for method, regime, right in records
        for seed in (1, 2)
    ]
    table = build(records, axes=("seed",)[:0], paper=published.of(""))
    assert {found.headers: found.cells[0].ours.mean for found in table.rows} == pytest.approx(rows)
    figure = figures.heatmaps if records[0].method != records[-1].method else figures.boxes
    frame = results.frame(records).assign(anchor_shots=7)
    assert len(figure("name", "Caption.", frame, published.of("")).panels) == 2


def test_a_difference_on_one_of_two_tasks_is_no_finding(make_record):
    records = [made(make_record, "knn", seed, 15 + seed, task=task) for seed in (1, 2) for task in ("mr", "cr")]
    records += [made(make_record, "knn_l2", seed, 4, task="mr") for seed in (1, 2)]
    table = paired(records)
    assert table.columns == ("MR",) and not table.findings
    alone = [record for record in records if record.task == "mr"]
    assert len(paired(alone).findings) == 1


def test_regimes_that_share_no_row_have_no_column(make_record):
    """In-context learning fills the context; kNN Prompting has few shots."""
    records = [dataclasses.replace(made(make_record, "knn", 1, 15), cell=FEW), made(make_record, "icl", 1, 4)]
    assert build(records, paper=published.of("")).headers == ("m", "Method")


def test_a_task_with_one_seed_is_not_averaged(make_record):
    records = [made(make_record, method, seed, right) for method, right in (("knn", 15), ("icl", 4)) for seed in (1, 2)]
    records += [made(make_record, method, 1, 4, task="cr") for method in ("knn", "icl")]
    (row,) = (table := paired(records)).rows
    assert row.cells[-1].ours == Score(pytest.approx(55), 0, 2, "1 task")
    assert table.findings[0][0].endswith("; MR")
