"""The rendered pages are those that the records give; intervals, cells and verdicts are right."""

import dataclasses
import itertools

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import cells, page
from knnprompt_jax.report import intervals, published
from knnprompt_jax.settings import grids
from tests.runs import conftest
from tools import analyses, render_docs, scale_tables, scales

MODELS = ("smollm2", "gemma-3-270m")


def test_the_pages_are_rendered_from_the_shipped_records(tmp_path):
    shipped = render_docs.load()
    rendered = render_docs.render(**shipped)
    assert {path.name for path in rendered} == {"accuracy.md", "findings.md", "README.md"}
    for path, text in rendered.items():
        assert "None" not in text and path.read_text(encoding="utf-8") == text, (
            f"{path.name}: run python -m tools.render_docs"
        )
    render_docs.draw_by_size(shipped["scale"], tmp_path / "by_size.png")
    render_docs.draw_by_rows(shipped["few_shot"], shipped["matched"], tmp_path / "by_rows.png")
    for name, shown in render_docs.FIGURES.items():
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") and shown.exists()


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({8: (0.1, 2), 32: (1, 2)}, "yes"),
        ({8: (-1, 2), 32: (1, 2)}, "yes (m = 32)"),
        ({8: (-2, -1), 32: (1, 2)}, "yes (m = 32); no (m = 8)"),
        ({8: (-2, -1)}, "no"),
        ({8: (-2, 0), 32: (0, 2)}, "?"),
        ({}, "–"),
    ],
)
def test_verdicts(ends, expected):
    assert scales.verdict({m: intervals.Difference(0, *each) for m, each in ends.items()}) == expected


def made(method, task, m, seed, right, model="smollm2", **changes):
    """A record of seven rows, of which the first are right."""
    predicted = tuple("1" if row < right else "0" for row in range(7))
    fields = {"model": model, "method": method, "task": task, "shots": m, "seed": seed, "predicted": predicted}
    settings = {"options": {"distance": "kl"} if method == "knn" else {}}
    return conftest.make_record(
        **fields, settings=settings, true=("1",) * 7, file_name=f"{task}-{method}-m{m}-{seed}.json", **changes
    )


def grid(**changes):
    """Records of two methods on two tasks: in-context learning has m = 2, and no seed 3 on CR."""
    for task in ("mr", "cr"):
        for seed in (1, 2, 3) if task == "mr" else (1, 2):
            yield made("icl", task, 2, seed, seed, **changes)
        yield from (made("knn", task, m, seed, seed + 2, **changes) for m in (8, 32) for seed in (1, 2, 3))


def test_cells_are_those_that_every_method_has():
    scale = scales.Scale([*grid(), made("knn", "sst2", 8, 1, 7)])
    assert scale.models == ["smollm2"] and scale.shots == [8, 32] and scale.rows["smollm2"][1:] == ["icl", "knn"]
    assert scale.cells(["smollm2"], 8) == {"cr": [1, 2], "mr": [1, 2, 3]}
    assert scale.accuracy("smollm2", "icl", 32, "mr", [1, 2, 3]).mean == pytest.approx(100 * 2 / 7)
    assert scale.accuracy("smollm2", "most_common", 8, "mr", [1, 2]).mean == 100
    cells = scale.cells(["smollm2"], 8)
    assert scale.mean("smollm2", "knn", 8, cells) == pytest.approx(100 * (4 + 3.5) / 2 / 7)
    assert scale.between("smollm2", "knn", "icl", 8).mean == pytest.approx(200 / 7)
    assert str(scale.growth("smollm2", "knn", 8, 32)) == "+0.00 [0.00, 0.00]"
    assert scale.growth("smollm2", "knn", 8, 32, "mr", without="mr") is None


@pytest.mark.parametrize("name", ["precision", "analyses"])
def test_shipped_records_have_a_report(name):
    path = render_docs.DOCS / "records" / f"{name}.jsonl.gz"
    printed = page.run(grids.ReportSettings(records=str(path), format="text"))
    assert "kNN Prompting" in printed and "SmolLM2-135M" in printed


def test_models_are_compared_on_the_tasks_that_all_have():
    less = [
        made(method, "mr", m, seed, 5, model=MODELS[1]) for method, m in (("icl", 2), ("knn", 8)) for seed in (1, 2)
    ]
    scale = scales.Scale([*grid(), *less])
    assert scale.models == [*MODELS] and scale.shared("smollm2", 8) == {"mr": [1, 2, 3]}
    assert scale.between("smollm2", "knn", "icl", 8, "cr").mean == pytest.approx(200 / 7)
    assert scale.between(MODELS[1], "knn", "icl", 8, "cr") is None
    assert scale.shared("smollm2", 32) == {"cr": [1, 2], "mr": [1, 2, 3]}
    assert scale.tasks() == "MR, with 3 seeds (Gemma 3 270M: 2)"


def test_a_method_that_lacks_cells_is_no_row_and_hides_none():
    records = [*grid(), *(made("chosen", "mr", m, seed, 7) for m in (8, 32) for seed in (1, 2, 3))]
    scale = scales.Scale([*records, *(made("chosen", "cr", 8, seed, 7) for seed in (1, 2))])
    assert [scale.shown("smollm2", m)[1:] for m in (8, 32)] == [["icl", "knn", "chosen"], ["icl", "knn"]]
    assert scale.cells(["smollm2"], 32).keys() == {"cr", "mr"}
    table = scale_tables.shared_table(scale, ["chosen", "knn"], 8)
    assert "| 100.0 |" in table and table.startswith("| m = 8 | SmolLM2-135M |")
    assert "chosen" not in scale_tables.shared_table(scale, ["chosen"], 32)


def test_more_rows_of_some_methods_are_shown_without_the_others():
    more = [
        *grid(),
        *(
            made("knn", task, m, seed, 7, model="smollm2")
            for task in ("mr", "cr")
            for m in (64, 128)
            for seed in (1, 2)
        ),
        *(made("linear_probe", task, 8, seed, 7) for task in ("mr", "cr") for seed in (1, 2)),
    ]
    scale = scales.Scale(more)
    assert scale.shots == [8] and scale.of(("icl", "knn")).shots == [8, 32, 64, 128]
    assert scale.between("smollm2", "linear_probe", "knn", 8).mean == pytest.approx(100 * 3.5 / 7)
    grown = scale.of(("icl", "knn"))
    assert (
        grown.between("smollm2", "linear_probe", "knn", 8) is None and grown.differences("smollm2", "knn", "no") == {}
    )
    assert grown.means("smollm2", "knn")[128] == 100


def test_spreads_are_those_of_the_tasks_at_every_m():
    """CR is left out; SUBJ is as MR, with other accuracies; SST2 has one m."""
    records = [*grid(), *(made("knn", "sst2", 32, seed, seed) for seed in (1, 2, 3))]
    records += [made("icl", task, 2, seed, seed) for task in ("sst2", "subj") for seed in (1, 2, 3)]
    records += [made("knn", "subj", m, seed, 2 * seed) for m in (8, 32) for seed in (1, 2, 3)]
    *_, row = scale_tables.spread_table(scales.Scale(records), "knn", "icl", (8, 32)).splitlines()
    mr, subj = np.std([1, 2, 3], ddof=1), np.std([2, 4, 6], ddof=1)
    spread = f"{100 * (mr + subj) / 2 / 7:.1f} (0 of 2)"
    assert row == f"| SmolLM2 | {100 * mr / 7:.1f} | {spread} | {spread} |"


def test_few_shot_methods_have_their_own_demonstrations_at_each_m():
    few = [
        made(method, "mr", m, seed, m + more, cell={"regime": "few-shot"})
        for m in (2, 4)
        for seed in (1, 2)
        for method, more in (("icl", 0), ("knn", 1))
    ]
    scale = scales.Scale(few)
    assert scale.shots == [2, 4] and scale.means("smollm2", "icl") == pytest.approx({2: 200 / 7, 4: 400 / 7})
    with pytest.raises(ValueError, match="too many values"):
        scales.Scale([*few, *grid()])


def test_copies_of_in_context_learning_are_left_out():
    copies = [made("knn", "sst2", 8, seed, 1, note=cells.REUSED) for seed in (1, 2, 3)]
    others = [made("icl", "sst2", 2, seed, 1) for seed in (1, 2, 3)]
    assert scales.Scale([*grid(), *others, *copies]).cells(["smollm2"], 8).keys() == {"cr", "mr"}


def test_an_axis_has_a_column_for_each_value_and_a_paired_difference():
    right = {3: {"cr": (6, 3), "mr": (5, 4)}, 1: {"cr": (2, 1), "mr": (5, 4)}}
    records = [
        made("knn", task, 8, seed, right[k][task][seed - 1], cell={"k": k})
        for task, k, seed in itertools.product(("mr", "cr"), (3, 1), (2, 1))
    ]
    header, _, *rows = scale_tables.axis_table(records, "k", (3, 1)).splitlines()
    assert header == "|  | k = 1 | k = 3 | 3 − 1 |" and rows[1] == "| MR | 64.3 | 64.3 | +0.00 [0.00, 0.00] |"
    assert rows[0].startswith("| CR | 21.4 | 64.3 | +42.9 [")
    assert scale_tables.axis_table(records, "k").splitlines()[2] == "| CR | 21.4 | 64.3 |"


def test_means_are_over_tasks_and_seeds():
    splits = [
        made("knn", task, 8, seed, 7, accuracy=seed / 4, demo_shots=demos, cell={"anchor_shots": anchors})
        for task, demos, anchors, seed in itertools.product(("mr", "cr"), (1, 2), (1, 2), (1, 2))
        if (task, demos, anchors) != ("cr", 2, 2)
    ]
    splits = analyses.splits([dataclasses.replace(record, experiment="split_strategy") for record in splits])
    assert len(splits) == 12
    few = [record for record in splits if record.demo_shots == 1]
    last = {"2 − 1": {"1 demonstration": "+0.0"}}
    header, _, row, printed = scale_tables.means_table(few, [["Paper", "1.0", "2.0", "+1.0"]], last).splitlines()
    assert header == "|  | 1 anchor | 2 anchors | 2 − 1 |" and row == "| 1 demonstration | 37.5 | 37.5 | +0.0 |"
    assert printed == "| Paper | 1.0 | 2.0 | +1.0 |"


def test_a_method_is_compared_on_the_seeds_that_it_has():
    records = [made("knn", task, 8, seed, 5) for task in ("sst2", "mpqa") for seed in (1, 2, 3)]
    records += [made("ensemble", task, 8, seed, 2 * seed) for task in ("sst2", "mpqa") for seed in (2, 3)]
    assert [text[:6] for text in analyses.on_tasks(scales.Scale(records), "ensemble", 8)] == ["+0.0 ["] * 2


def test_the_effect_of_a_split_is_that_of_its_ends_averaged_over_the_other_axis():
    right = {(1, 1): 2, (1, 2): 7, (1, 4): 5, (2, 1): 1, (2, 2): 0, (2, 4): 2, (4, 1): 3, (4, 2): 7, (4, 4): 6}
    records = [
        made("knn", task, 8, seed, count, demo_shots=demos, cell={"anchor_shots": anchors}, experiment="split_strategy")
        for ((demos, anchors), count), task, seed in itertools.product(right.items(), ("mr", "cr"), (3, 5))
    ]
    assert analyses.split_effect(records, "column").mean == pytest.approx(100 * (3 + 1 + 3) / 3 / 7)
    assert analyses.split_effect(records, "row").mean == pytest.approx(100 * (1 + 0 + 1) / 3 / 7)


def test_skewed_train_rows_are_compared_with_balanced_ones():
    places = {("A", 0.125): 2, ("A", 0.5): 5, ("B", 0.125): 0, ("B", 0.5): 0}
    records = [
        made(method, "mr", 16, seed, count, experiment="prior_reliance", cell={"setting": setting, "ratio": ratio})
        for ((setting, ratio), count), seed, method in itertools.product(places.items(), (1, 2), ("knn", "icl"))
    ]
    assert analyses.skew_effect(records, "train skewed", "knn").mean == pytest.approx(-300 / 7)
    assert analyses.skew_effect(records, "train skewed", "knn", "icl") == (0, 0, 0)
    assert analyses.skew_effect(records, "test skewed", "knn").mean == pytest.approx(-500 / 7)
    assert analyses.most_common(records) == ["Most common class of the test rows", "100.0", "100.0", "100.0", "–", "–"]


def test_the_strongest_skew_is_shown_beside_the_papers():
    records = [
        made("knn", "mr", 16, 1, 7, experiment="prior_reliance", cell={"setting": setting, "ratio": ratio})
        for setting, ratio in itertools.product("ABC", (0.125, 0.25, 0.5))
    ]
    columns = [record.cell["column"] for record in analyses.skewed(records)]
    assert sorted(columns) == ["balanced", "test skewed", "train and test skewed", "train skewed"]
    assert analyses.printed_skewed()[2] == [
        "Paper, 1.5B: kNN Prompting",
        "80.3",
        "77.1",
        "79.8",
        "79.0",
        "-2.6",
        "-1.3",
    ]


def test_the_papers_leads_are_those_of_its_table():
    scores = {
        (row["method"], row["m"]): row["scores"]["TREC"]["mean"]
        for row in published.tables()["data_scaling"]["rows"]
        if row["model"] == "6B"
    }
    lead = scores["kNN Prompting", 128] - scores["ICL", "M_T"]
    assert analyses.papers(["trec"], ("knn", 128), ("icl", 0), size="6B") == f"{lead:+.1f}"


def test_the_papers_leads_over_a_method_are_those_of_its_table():
    rows = {(row["method"], row["m"]): row["scores"] for row in published.tables()["few_shot"]["rows"]}
    leads = [rows["kNN Prompting", 4][task]["mean"] - rows["ICL", 4][task]["mean"] for task in ("TREC", "MR")]
    assert analyses.papers(["trec", "mr"], ("knn", 4), ("icl", 4), "few_shot") == f"{sum(leads) / 2:+.1f}"


def test_one_demonstration_is_compared_on_the_same_seeds_and_rows():
    grown = scales.Scale(grid())
    records = [
        made("knn", task, 32, seed, 7 if k == 3 else 0, cell={"k": k, "regime": "few-shot"})
        for task in ("mr", "cr")
        for k in (1, 3)
        for seed in (1, 2, 3)
    ]
    assert analyses.one_demonstration(records, grown, 8).mean == pytest.approx(100 * (3 + 3.5) / 2 / 7)
    assert analyses.one_demonstration(records, grown, 8, without="cr").mean == pytest.approx(300 / 7)


def test_a_model_without_cells_is_left_out():
    less = [made("icl", "mr", 2, 1, 3, model=MODELS[1]), made("knn", "mr", 8, 1, 3, model=MODELS[1])]
    scale = scales.Scale([*grid(), *less])
    assert scale.models == ["smollm2"] and scale.complete(MODELS) == []


def test_records_with_one_place_or_other_rows_are_refused():
    with pytest.raises(errors.UserError, match="an earlier record is of the same run"):
        scales.Scale([*grid(), made("knn", "mr", 8, 1, 5)])
    with pytest.raises(errors.UserError, match="other test rows than in earlier records of mr"):
        scales.Scale([*grid(), dataclasses.replace(made("knn", "mr", 64, 1, 5), true=("0",) * 7)])


def test_paragraphs_are_wrapped_and_tables_are_not():
    words, row = " ".join(["word"] * 40), f"| {' '.join(['cell'] * 40)} |"
    text = render_docs.wrap(f"# Title\n\n\n\n- {words}\n- b\n  c\n\n{row}\n")
    assert row in text and "\n- b c\n" in text and "\n  word" in text and "\n\n\n" not in text
    assert max(len(line) for line in text.splitlines() if line != row) <= 120
