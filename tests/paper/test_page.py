"""A folder of results → the page and its tables."""

import dataclasses

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import experiment, experiments, page
from knnprompt_jax.report import drawing
from knnprompt_jax.runs import records


@pytest.fixture(scope="module")
def found(results):
    with drawing.style():
        return {section.name: section for section in page.sections(page.read(results), results)}


def test_every_experiment_has_a_section_with_something_in_it(found):
    assert list(found) == list(experiments.EXPERIMENTS)
    for section in found.values():
        assert section.tables or section.maps


@pytest.mark.parametrize(
    "name",
    ["few_shot", "data_scaling", "prompt_compose", "upper_bound", "robustness", "split_strategy"]
    + ["prior_reliance", "choice_of_k", "imbalance", "fine_tuning"],
)
def test_what_the_paper_draws_is_drawn(found, name):
    assert found[name].figures
    assert all(figure.panels for figure in found[name].figures)


def test_data_scaling_has_the_first_figure_the_pilot_and_the_law(found):
    assert [figure.name for figure in found["data_scaling"].figures] == ["first", "pilot", "data_scaling", "power_law"]


def test_facts_say_what_ran_and_what_the_paper_has_more_of(found):
    facts = found["few_shot"].facts
    assert facts["Model"] == "gpt2-xl (1.5B)"
    assert facts["Seeds"] == "1–3"
    assert facts["KL direction"] == "KL(anchor ‖ test), as released"
    assert facts["Other than in the config that ships"] == (
        "without m = 32; 2 of 6 tasks (without SUBJ, MPQA, CR, MR); 3 of 10 seeds"
    )
    assert (
        "all m rows per class are drawn at once for In-context learning, Contextual calibration, Noisy channel;"
        in facts["Other rows at equal seeds"]
    )


def test_a_figure_without_panels_is_not_shown(make_record):
    records = [make_record("upper_bound", "mr", "icl", 128, 1)]
    with drawing.style():
        assert not experiments.get("upper_bound").draw(experiment.Shown("upper_bound", records))[1]


def test_a_spread_over_fewer_tasks_is_marked(make_record):
    records = [make_record("robustness", "mr", method, 128, seed) for method in ("icl", "knn") for seed in (1, 2)]
    records += [make_record("robustness", "cr", "icl", 128, seed) for seed in (1, 2)]
    with drawing.style():
        *_, table = experiments.get("robustness").draw(experiment.Shown("robustness", records))[0]
    marks = {row.headers[-1]: row.cells[0].marks for row in table.rows if row.cells[0].ours}
    assert marks == {"In-context learning": (), "kNN Prompting": ("over 1 of 2 tasks",)}


def test_case_study_draws_rows_that_knn_has_right_and_icl_wrong(found):
    shown = found["case_study"].maps[0]
    assert shown.cases
    for point in (shown.points[index] for index in shown.cases):
        assert point.prediction == point.label != point.other
        assert all(shown.points[index].is_anchor for index, _ in point.neighbours)


def test_task_statistics_stand_beside_the_papers(found):
    rows = {row.headers[0]: row.cells for row in found["max_shots"].tables[0].rows}
    sst2, *_, trec = rows["shots that 2,048 tokens hold"]
    assert [(cell.ours.mean, cell.paper.mean, cell.difference) for cell in (sst2, trec)] == [(44, 44, 0), (44, 17, 27)]
    assert rows["TP for 1,024 tokens: prompts cut at so many, %"][0].ours.mean == 3


def test_writes_the_page_and_every_table_and_writes_the_same_again(results, page_path, tmp_path):
    text = page_path.read_text(encoding="utf-8")
    assert "lies within two standard errors" in text
    names = {file.name for file in (page_path.parent / "tables").iterdir()}
    assert {"few_shot.csv", "few_shot.md", "power_law.csv", "max_shots.md"} <= names
    assert page.run(str(results), str(tmp_path / "page")).read_text(encoding="utf-8") == text


def test_a_model_that_the_paper_does_not_have_is_said_plainly(make_record, tmp_path):
    for seed in (1, 2):
        made = make_record("few_shot", "trec", "knn", 8, seed, model="tiny", cell={"regime": "few-shot"})
        records.write(tmp_path / "results" / "few_shot", made)
    text = page.run(str(tmp_path / "results"), str(tmp_path / "page")).read_text(encoding="utf-8")
    assert "These runs are of the tiny model, which the paper has no results of" in text
    assert "a reference only" in text
    assert "Without records: SST2, seed by seed" in text and "paper_seeds" not in text
    assert 'class="within"' not in text


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        ("", "", "no such folder of results"),
        ("results/notes.txt", "", "no results: records are expected in a folder of it named sst2"),
        ("results/few_shot/notes.txt", "", "no results"),
        ("results/few_shot/a.json", '{"a": 1}', "a.json: not a record"),
        ("results/few_shot/a.json", '{"format": 1}', "a.json: a record of format 1, this version reads format"),
        ("results/max_shots/max_shots.json", '{"rows": [{"task": "mr"}]}', "max_shots.json: no task statistics: rows"),
    ],
)
def test_bad_results_are_told_in_one_line(tmp_path, place, content, message):
    folder = tmp_path / "results"
    if place:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(content, encoding="utf-8")
    with pytest.raises(errors.UserError, match=message) as raised:
        page.run(str(folder), str(tmp_path / "page"))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "page").exists()


def test_a_record_of_another_experiment_is_refused(make_record, tmp_path):
    records.write(tmp_path / "distance", make_record("few_shot", "mr", "knn", 8, 1))
    with pytest.raises(errors.UserError, match="a record of 'few_shot'"):
        page.run(str(tmp_path), str(tmp_path / "page"))


def test_a_spoilt_case_study_is_refused(make_record, tmp_path):
    made = dataclasses.replace(make_record("case_study", "mr", "knn", 8, 1))
    path = records.write(tmp_path / "case_study", made)
    path.with_suffix(".npz").write_text("junk", encoding="utf-8")
    with pytest.raises(errors.UserError, match="not a case study"):
        page.run(str(tmp_path), str(tmp_path / "page"))
