"""A folder of results → the page and its tables."""

import dataclasses
import html
import sys

import pytest

from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.common import errors
from knnprompt_jax.report import drawing, records
from knnprompt_jax.study import paper_tables


@pytest.fixture(scope="module")
def found(page_and_sections):
    return {section.name: section for section in page_and_sections[1]}


def test_every_experiment_has_a_section_with_its_figures_and_tables(found, page_path):
    assert {*found} == {*paper_tables.EXPERIMENTS} - {"low_resource"}, "only low_resource has no records"
    figures = {name: [figure.name for figure in section.figures] for name, section in found.items()}
    assert figures.pop("data_scaling") == ["first", "pilot", "data_scaling", "power_law"]
    drawn = {"few_shot", "prompt_compose", "fine_tuning", "robustness", "split_strategy", "choice_of_k", "imbalance"}
    assert figures == {name: [name] if name in drawn else [] for name in figures}
    assert all(figure.panels for section in found.values() for figure in section.figures)
    text = html.unescape(page_path.read_text(encoding="utf-8"))
    tables = [table for section in found.values() for table in section.tables]
    assert {path.name for path in (page_path.parent / "tables").iterdir()} == {f"{table.name}.csv" for table in tables}
    assert all(shown in text for table in tables for cell in table.cells for shown in (cell.text, cell.paper_text))
    rows = {row.headers[0]: row.cells for row in found["max_shots"].tables[0].rows}
    sst2, *_, trec = rows["shots that 2,048 tokens hold"]
    assert [(cell.ours.mean, cell.paper.mean, cell.difference) for cell in (sst2, trec)] == [(44, 44, 0), (44, 17, 27)]
    assert rows["TP for 1,024 tokens: truncated prompts, %"][0].ours.mean == 3


def test_the_page_has_the_papers_numbers_of_models_that_nobody_ran(found):
    rows = {row.headers: row.cells for row in found["data_scaling"].tables[0].rows}
    cells = rows["opt-30b (30B)", "1024", "kNN Prompting"]
    assert len(cells) == 11 and all(cell.paper and not cell.ours for cell in cells)
    laws = {row.headers: row.cells for table in found["data_scaling"].tables[-1:] for row in table.rows}
    assert all(cell.paper and not cell.ours for cell in laws["opt-30b (30B)", "average"])
    assert "opt-30b (30B)" in [name for _, name in found["data_scaling"].figures[-1].legend]


@pytest.mark.parametrize("folders", [["few_shot"], [""], ["few_shot", ""]])
def test_tables_of_experiments_and_of_other_records_are_printed(make_record, tmp_path, folders):
    made = make_record("few_shot", "trec", "knn", 8, 1, model="tiny", cell={"regime": "few-shot"})
    for folder in folders:
        records.write(tmp_path / folder, dataclasses.replace(made, experiment=folder))
    printed = paper_tables.report(commands.ReportSettings(records=str(tmp_path), format="text"))
    for text in ("Model: the tiny model", "Test rows: 47 per task", "KL direction: KL(anchor ‖ test)"):
        assert text in printed
    assert ("|D| = 1; the rest" in printed) == ("few_shot" in folders)
    assert ("8 train rows per class, 1 seed" in printed) == ("" in folders)
    assert "Data scaling" not in printed and "64.0" not in printed, "tables without a record are not printed"
    own = paper_tables.report(commands.ReportSettings(records=str(tmp_path / folders[0]), format="text"))
    assert "kNN Prompting" in own, "paper.py prints this folder"


def test_text_needs_no_library_for_pages_and_has_no_rows_of_the_paper_only(make_record, tmp_path, monkeypatch):
    for experiment, regime in (("few_shot", "few-shot"), ("data_scaling", "full"), ("data_scaling", "few-shot")):
        made = make_record(experiment, "trec", "knn", 8, 1, cell={"regime": regime})
        records.write(tmp_path / experiment, made)
    for library in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, library, None)  # As if it were not installed.
    printed = paper_tables.report(commands.ReportSettings(records=str(tmp_path), format="text"))
    assert "paper 63.7 ± 5.5" in printed and "Data scaling" in printed
    assert "SST2  " not in printed and "Noisy channel  " not in printed and "OPT" not in printed
    with pytest.raises(errors.UserError, match=r"needs jinja2, matplotlib: .*; --format=text needs none$"):
        paper_tables.report(commands.ReportSettings(records=str(tmp_path), output=str(tmp_path / "page")))


def test_records_of_other_runs_come_first_on_the_page(make_record, tmp_path):
    made = make_record("few_shot", "trec", "knn", 8, 1)
    for shots in (8, 16):
        records.write(tmp_path, make_record("", "trec", "knn", shots, 1))
    settings = commands.ReportSettings(records=str(tmp_path), output=str(tmp_path / "page"))
    assert paper_tables.report(settings) == f"page: {tmp_path / 'page' / 'index.html'}"
    text = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert 'id="table-accuracy_8"' in text and 'id="table-accuracy_16"' in text and "Data scaling" not in text
    assert {path.stem for path in (tmp_path / "page" / "tables").iterdir()} == {"accuracy_8", "accuracy_16"}
    records.write(tmp_path / "few_shot", made)
    with drawing.style():
        assert [section.name for section in paper_tables.sections(tmp_path)] == ["overview", "few_shot"]


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        ("", "", "results: not a record"),
        ("results/notes.txt", "", "no records here or in subfolders data_scaling"),
        ("results/max_shots/max_shots.json", "{}", "max_shots.json: no task statistics"),
    ],
)
def test_invalid_results_give_a_one_line_error(tmp_path, place, content, message):
    if place:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(content, encoding="utf-8")
    with pytest.raises(errors.UserError, match=message):
        paper_tables.report(commands.ReportSettings(records=str(tmp_path / "results"), output=str(tmp_path / "page")))
    assert not (tmp_path / "page").exists()
