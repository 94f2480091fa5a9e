"""A folder of results → the page and its tables."""

import dataclasses
import html
import pathlib
import sys

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import experiments, page
from knnprompt_jax.report import drawing, records
from knnprompt_jax.settings import grids


@pytest.fixture(scope="module")
def found(page_and_sections):
    return {section.name: section for section in page_and_sections[1]}


def test_every_experiment_has_a_section_with_its_figures_and_tables(found, page_path):
    assert {*found} == {*experiments.EXPERIMENTS}
    assert list(found)[-1] == "low_resource", "sections without records come last"
    assert found["few_shot"].tables[0].columns[:3] == ("SST2", "TREC", "SUBJ"), "tasks with records come first"
    folds = page_path.read_text(encoding="utf-8").split("<details>")
    assert len(folds) == 2 and folds[0].rpartition("<section id=")[2].startswith('"low_resource"')
    alone = "No run of ours: only the paper's numbers."
    assert alone in found["low_resource"].tables[0].footnotes and alone not in found["few_shot"].tables[0].footnotes
    figures = {name: [figure.name for figure in section.figures] for name, section in found.items()}
    assert figures.pop("data_scaling") == ["first", "pilot", "data_scaling", "power_law"]
    drawn = {"few_shot", "prompt_compose", "fine_tuning", "robustness", "split_strategy", "choice_of_k", "imbalance"}
    assert figures == {name: [name] if name in drawn else [] for name in figures}
    assert all(figure.panels for section in found.values() for figure in section.figures)
    text = html.unescape(page_path.read_text(encoding="utf-8"))
    tables = [table for section in found.values() for table in section.tables]
    assert {path.name for path in (page_path.parent / "tables").iterdir()} == {
        f"{table.name}.{kind}" for table in tables for kind in ("csv", "md")
    }
    assert all(shown in text for table in tables for cell in table.cells for shown in (cell.text, cell.paper_text))
    rows = {row.headers[0]: row.cells for row in found["max_shots"].tables[0].rows}
    sst2, *_, trec = rows["shots that 2,048 tokens hold"]
    assert [(cell.ours.mean, cell.paper.mean, cell.difference) for cell in (sst2, trec)] == [(44, 44, 0), (44, 17, 27)]
    assert rows["TP for 1,024 tokens: truncated prompts, %"][0].ours.mean == 3


def test_facts_describe_the_runs_and_what_the_paper_has_more_of(found):
    assert "Few-shot draws" in found["data_scaling"].facts and "Few-shot draws" not in found["distance"].facts
    facts = found["few_shot"].facts
    assert (facts["Model"], facts["Seeds"]) == ("gpt2-xl (1.5B)", "1–3")
    assert facts["KL direction"] == "KL(anchor ‖ test)"
    assert facts["Differences from the shipped config"] == (
        "without tasks SUBJ, MPQA, CR, MR; without m 2; 3 of 10 seeds"
    )


def facts_of(experiment, made):
    """Return the facts of an experiment's section of these records, and the differences from the shipped config."""
    with drawing.style():
        facts = experiments.EXPERIMENTS[experiment].section(made, pathlib.Path()).facts
    return facts, facts["Differences from the shipped config"].split("; ")


def test_differences_from_the_shipped_config_are_listed_once(make_record):
    settings = {"label_token": "first", "options": {"template": 3}}
    settings |= {"deterministic": True, "mesh": {"model": 1}}
    fields = {"cell": {"regime": "few-shot"}, "settings": settings, "source": {"rows": 100, "context": 1021}}
    made = [make_record("few_shot", "mr", "noisy_channel", 8, seed, demo_shots=8, **fields) for seed in (1, 2)]
    _, differences = facts_of("few_shot", made)
    assert differences == [
        "without tasks SST2, SUBJ, MPQA, CR, TREC",
        "without methods In-context learning / Contextual calibration / kNN Prompting / kNN, label words",
        "without m 2, 4, 16, 32",
        "2 of 10 seeds",
        "rows = 100 instead of all",
        "context = 1021 instead of the model's",
        "label_token = first instead of last",
        "deterministic = True instead of False",
        "Noisy channel: template = 3 instead of 0",
    ]


def test_a_missing_few_shot_run_is_not_a_missing_m(make_record):
    fields = {"model": "gpt2-xl", "cell": {"regime": "full"}}
    made = [make_record("data_scaling", "mr", method, 32, 1, **fields) for method in ("icl", "knn")]
    facts, differences = facts_of("data_scaling", made)
    assert {"without m 64, 128, 256, 512, 1024", "without few-shot m 1, 2, 4, 8, 16, 32"} <= {*differences}
    assert "Few-shot draws" not in facts
    other = [make_record("few_shot", "mr", "knn", 4, 1, model="gpt2-xl", cell={"regime": "full"})]
    assert "without m 2, 4, 8, 16, 32" in facts_of("few_shot", other)[1]
    demonstrations, _ = made
    most = [dataclasses.replace(demonstrations, demo_shots=32), dataclasses.replace(made[1], shots=128)]
    assert "without m 32, 64, 256, 512, 1024" in facts_of("data_scaling", most)[1], "M_T = 32 is no m"
    few = [dataclasses.replace(record, cell={"regime": "few-shot"}) for record in made]
    assert "without m 32, 64, 128, 256, 512, 1024" in facts_of("data_scaling", few)[1]


def test_case_study_draws_rows_that_knn_has_right_and_icl_wrong(found):
    shown = found["case_study"].maps[0]
    assert shown.cases
    for point in (shown.points[index] for index in shown.cases):
        assert point.prediction == point.label != point.other
        assert all(shown.points[index].kind == "anchor" for index, _ in point.neighbours)


@pytest.mark.parametrize(
    ("records_at", "form", "texts"),
    [
        ("", "markdown", ["(paper 63.7 ± 5.5)", "|---:|"]),
        ("few_shot", "text", ["paper 63.7 ± 5.5"]),  # `paper.py` prints this folder.
        ("any", "text", ["8 train rows per class, 1 seed"]),
        ("both", "text", ["8 train rows per class, 1 seed", "paper 63.7 ± 5.5"]),
    ],
)
def test_tables_of_experiments_and_of_other_records_are_printed(make_record, tmp_path, records_at, form, texts):
    made = make_record("few_shot", "trec", "knn", 8, 1, model="tiny", cell={"regime": "few-shot"})
    if records_at != "any":
        records.write(tmp_path / "few_shot", made)
    if records_at in ("any", "both"):
        records.write(tmp_path, dataclasses.replace(made, experiment=""))
    folder = tmp_path / "few_shot" if records_at == "few_shot" else tmp_path
    printed = page.run(grids.ReportSettings(records=str(folder), format=form))
    for text in ("Model: the tiny model", "Test rows: 47 per task", "KL direction: KL(anchor ‖ test)", *texts):
        assert text in printed
    assert "Data scaling" not in printed and "64.0" not in printed, "tables without a record are left out"


def test_text_needs_no_library_for_pages_and_leaves_out_what_only_the_paper_ran(make_record, tmp_path, monkeypatch):
    for experiment, regime in (("few_shot", "few-shot"), ("data_scaling", "full"), ("data_scaling", "few-shot")):
        made = make_record(experiment, "trec", "knn", 8, 1, cell={"regime": regime})
        records.write(tmp_path / experiment, made)
    for library in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, library, None)  # As if it were not installed.
    printed = page.run(grids.ReportSettings(records=str(tmp_path), format="text"))
    assert "paper 63.7 ± 5.5" in printed and "Data scaling" in printed
    assert "SST2  " not in printed and "Noisy channel  " not in printed and "OPT" not in printed
    with pytest.raises(errors.UserError, match=r"needs jinja2, matplotlib: .*; --format=text needs none$"):
        page.run(grids.ReportSettings(records=str(tmp_path), output=str(tmp_path / "page")))


def test_records_of_other_runs_have_a_page_until_the_paper_has_records(make_record, tmp_path, caplog):
    made = make_record("few_shot", "trec", "knn", 8, 1)
    for shots in (8, 16):
        records.write(tmp_path, make_record("", "trec", "knn", shots, 1))
    settings = grids.ReportSettings(records=str(tmp_path), output=str(tmp_path / "page"))
    assert page.run(settings) == f"page: {tmp_path / 'page' / 'index.html'}"
    text = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert 'id="table-accuracy_8"' in text and 'id="table-accuracy_16"' in text and "Xu et al." not in text
    assert {path.stem for path in (tmp_path / "page" / "tables").iterdir()} == {"accuracy_8", "accuracy_16"}
    records.write(tmp_path / "few_shot", made)
    assert page.sections(tmp_path)[0].name == "few_shot"
    assert ": 2 of 3 records belong to no table of the paper and are left out; --format=text" in caplog.text


def test_records_without_tables_are_no_text(make_record, tmp_path):
    records.write(tmp_path / "case_study", make_record("case_study", "mr", "knn", 8, 1))
    with pytest.raises(errors.UserError, match="its records have no tables, only maps: --format=html draws them"):
        page.run(grids.ReportSettings(records=str(tmp_path), format="text"))


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        ("", "", "no such folder of results"),
        ("results/notes.txt", "", "no results: records are expected in its subfolders data_scaling"),
        ("results/few_shot/a.json", '{"a": 1}', "a.json: not a record"),
        ("results/max_shots/max_shots.json", '{"rows": [{"task": "mr"}]}', "max_shots.json: no task statistics: rows"),
        ("results/any.json", "", "any.json: not a record"),
        ("results/distance/a.json", "few_shot", "a record of 'few_shot'"),
    ],
)
def test_invalid_results_give_a_one_line_error(make_record, tmp_path, place, content, message):
    if place:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(content, encoding="utf-8")
    if content == "few_shot":
        (tmp_path / place).unlink()
        records.write((tmp_path / place).parent, make_record("few_shot", "mr", "knn", 8, 1))
    with pytest.raises(errors.UserError, match=message):
        page.run(grids.ReportSettings(records=str(tmp_path / "results"), output=str(tmp_path / "page")))
    assert not (tmp_path / "page").exists()
