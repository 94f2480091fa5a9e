"""Paired differences: which records form a pair, when a difference is clear, and the findings."""

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.report import paired, results, tables
from knnprompt_jax.report.results import Score

FEW = {"regime": "few-shot"}


def build(records, axes=("model", "m", "method")):
    return paired.build("few_shot", results.frame(records), axes)


def only_cell(records):
    (cell,) = build(records).cells
    return cell


def test_differences_are_of_the_seeds_that_both_have(make_graded):
    records = [make_graded("knn", seed, right) for seed, right in ((1, 15), (2, 17), (3, 18), (4, 20))]
    records += [make_graded("icl", seed, right, m=4) for seed, right in ((1, 11), (2, 11), (3, 13), (5, 1))]
    table = build(records)
    (row,) = table.rows
    (cell,) = row.cells
    assert row.headers[1:] == ("8", "In-context learning") and table.headers == ("Model", "m", "against")
    assert (cell.ours.mean, cell.ours.std, cell.ours.count) == pytest.approx((25, 5, 3))


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
@pytest.mark.parametrize(("better", "is_clear"), [(0, False), (3, False), (4, True), (-4, True)])
def test_a_difference_is_clear_if_its_interval_excludes_zero(make_graded, seeds, better, is_clear):
    """With the same rows better for every seed, zero is the share of replicates without any of these rows.

    Of 20 rows, that is 0.85^20 = 3.9 % for three rows and 0.8^20 = 1.2 % for four; the interval leaves out 2.5 %.
    """
    records = [make_graded("knn", seed, 10 + better) for seed in seeds]
    cell = only_cell([*records, *(make_graded("icl", seed, 10, m=4) for seed in seeds)])
    assert cell.ours.mean == pytest.approx(5 * better)
    assert cell.marks == (tables.CLEAR if is_clear else "")


def test_seeds_that_disagree_make_a_difference_unclear(make_graded):
    """The mean difference is as large as in the clear case of four rows above."""
    records = [make_graded("knn", seed, 10 + better) for seed, better in ((1, 10), (2, -2), (3, 4))]
    cell = only_cell([*records, *(make_graded("icl", seed, 10, m=4) for seed in (1, 2, 3))])
    assert cell.ours.mean == pytest.approx(20) and not cell.marks


def test_an_average_can_be_clear_where_its_tasks_are_not(make_graded):
    """Three better rows of 20 on each of five tasks: no replicate of the average is without any."""
    tasks = ("sst2", "subj", "mpqa", "cr", "mr")
    records = [make_graded("knn", seed, 13, task=task) for task in tasks for seed in (1, 2)]
    records += [make_graded("icl", seed, 10, task=task) for task in tasks for seed in (1, 2)]
    (row,) = build(records).rows
    assert [cell.marks for cell in row.cells] == ["", "", "", "", "", tables.CLEAR]


def test_a_method_with_a_model_of_its_own_is_compared_with_every_model(make_graded):
    records = [
        make_graded(method, seed, 11, model=model)
        for method, model in (("knn", "gpt2-xl"), ("knn", "tiny"), ("fine_tuning_bert", "bert-large-uncased"))
        for seed in (1, 2)
    ]
    table = build(records)
    assert [row.headers[-1] for row in table.rows] == ["Fine-tuning, BERT-large"] * 2


def test_a_pair_has_equal_rows_and_the_ms_of_both(make_graded):
    assert not build([make_graded("knn", 1, 15), make_graded("icl", 1, 11, label="1")]).rows
    records = [make_graded("knn", 1, 15, m=m) for m in (8, 16)]
    records += [make_graded("knn_l2", 1, 11, m=16), make_graded("icl", 1, 11, m=4)]
    icl, l2 = "In-context learning", "kNN, L2 of hidden states"
    assert [row.headers[1:] for row in build(records).rows] == [("8", icl), ("16", icl), ("16", l2)]


def test_seeds_with_other_test_rows_are_refused(make_graded):
    records = [
        make_graded(method, seed, 15, label=label) for method in ("knn", "icl") for seed, label in ((1, "0"), (2, "1"))
    ]
    with pytest.raises(errors.UserError, match=r"different test rows; move some elsewhere: mr-knn.*, mr-knn"):
        build(records)


def test_a_pair_has_equal_regimes(make_graded):
    """In-context learning with M_T demonstrations is compared at every m, but not with few-shot runs."""
    few = [
        make_graded(method, seed, right, cell=FEW) for method, right in (("knn", 12), ("icl", 18)) for seed in (1, 2)
    ]
    full = [make_graded("icl", seed, 10 - seed, m=4) for seed in (1, 2)]
    assert only_cell([*few, *full]).ours == Score(pytest.approx(-30), pytest.approx(0), 2)


def test_findings_are_at_the_largest_m_and_averages_over_a_models_own_tasks(make_graded):
    def grid(tasks, **fields):
        for task in tasks:
            for seed in (1, 2):
                yield from (make_graded("knn", seed, 12 + seed, m=m, task=task, **fields) for m in (8, 16))
                yield make_graded("icl", seed, 2 * seed, m=4, task=task, **fields)
        yield from (make_graded("knn_l2", seed, 17 - seed, m=16, **fields) for seed in (1, 2))

    table = build([*grid(("mr", "cr")), *grid(("mr",), model="tiny")])
    run = "m = 16; 2 demonstrations per class; KL(anchor ‖ test)"
    assert list(table.findings) == [
        (f"gpt2-xl (1.5B); {run}; 2 tasks", "In-context learning +52.5", "–", "–"),
        (f"the tiny model; {run}; MR", "In-context learning +52.5", "–", "kNN, L2 of hidden states −10.0"),
    ]
    assert table.rows[-1].cells[-1].text == "−10.0 ± 7.1"


def test_a_difference_on_one_of_two_tasks_is_no_finding(make_graded):
    records = [make_graded("knn", seed, 15 + seed, task=task) for seed in (1, 2) for task in ("mr", "cr")]
    records += [make_graded("knn_l2", seed, 4) for seed in (1, 2)]
    table = build(records)
    assert table.columns == ("MR",) and not table.findings
    assert len(build([record for record in records if record.task == "mr"]).findings) == 1


def test_a_task_with_one_seed_is_not_averaged(make_graded):
    records = [make_graded(method, seed, right) for method, right in (("knn", 15), ("icl", 4)) for seed in (1, 2)]
    records += [make_graded(method, 1, 4, task="cr") for method in ("knn", "icl")]
    table = build(records)
    (row,) = table.rows
    assert row.cells[-1].ours == Score(pytest.approx(55), 0, 2)
    assert table.findings[0][0].endswith("; MR")


def test_a_difference_is_that_of_the_predictions(make_graded):
    """The noisy channel's predictions are those of each seed's best template, not of the best over seeds."""
    tried = {1: (0.85, 0.5), 2: (0.5, 0.85)}
    records = [make_graded("knn", seed, 14) for seed in tried]
    records += [make_graded("noisy_channel", seed, 17, candidates=each) for seed, each in tried.items()]
    frame = results.with_best_template(results.frame(records))
    (row,) = paired.build("few_shot", frame, ("model", "m", "method")).rows
    assert row.headers[-1] == "Noisy channel, best template of each seed"
    assert row.cells[0].ours.mean == pytest.approx(-15)
