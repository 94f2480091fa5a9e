"""The rendered pages are those that the shipped records give."""

import pytest

from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.study import paper_tables as page
from tools import pool_tables, render_docs, scales


def test_the_pages_are_rendered_from_the_shipped_records(tmp_path):
    shipped = render_docs.load()
    rendered = render_docs.render(**shipped)
    assert {path.name for path in rendered} == {"findings.md", "reliability.md", "tables.md", "README.md"}
    for path, text in rendered.items():
        assert "None" not in text and path.read_text(encoding="utf-8") == text, "run python -m tools.render_docs"
    render_docs.draw_by_size(shipped["scale"], tmp_path / "by_size.png")
    render_docs.draw_by_rows(shipped["few_shot"], shipped["matched"], tmp_path / "by_rows.png")
    render_docs.draw_worth(shipped["matched"], tmp_path / "worth.png")
    for name, shown in render_docs.FIGURES.items():
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") and shown.exists()


@pytest.mark.parametrize(
    ("method", "m", "source"), [("icl", 128, "matched"), ("icl", 8, "few_shot"), ("knn", 8, "scale")]
)
def test_methods_beside_the_pool_have_the_demonstrations_that_the_page_names(method, m, source):
    shipped = render_docs.load()
    own = render_docs.pool_results(*(shipped[name] for name in ("pool", "few_shot", "scale", "matched")))
    column = pool_tables.Column("", pool_tables.BINARY, m)
    scale = scales.Scale([record for record in shipped[source].records if record.method == method])
    expected = scale.mean("smollm2", method, m, own.cells("smollm2", column))
    assert own.mean("smollm2", method, column) == pytest.approx(expected)


def test_shipped_records_have_a_report():
    path = render_docs.DOCS / "records" / "analyses.jsonl.gz"
    printed = page.report(commands.ReportSettings(records=str(path), format="text"))
    assert "kNN Prompting" in printed and "SmolLM2-135M" in printed


def test_paragraphs_are_wrapped_and_tables_are_not():
    words, row = " ".join(["word"] * 40), f"| {' '.join(['cell'] * 40)} |"
    text = render_docs.wrap(f"# Title\n\n\n\n- {words}\n- b\n  c\n\n{row}\n")
    assert row in text and "\n- b c\n" in text and "\n  word" in text and "\n\n\n" not in text
    assert max(len(line) for line in text.splitlines() if line != row) <= 120
