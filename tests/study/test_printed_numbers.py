"""Every number that the paper prints is in the page's tables, unaltered."""

import json
import re

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.report import names, published


class Shown:
    """The tables of a page, as Markdown."""

    def __init__(self, folder):
        self.tables = {}
        for path in folder.glob("*.md"):
            lines = re.findall(r"^\| (.*) \|$", path.read_text(encoding="utf-8"), re.MULTILINE)
            self.tables[path.stem] = [line.split(" | ") for line in lines]

    def check(self, expected, table, named, column, m=None):
        """Check the paper's text in the one line that has all these names and the paper's model, or has this m."""
        header, *lines = self.tables[table]
        if "Model" in header and not any("(" in name for name in named):
            named = [*named, names.model(published.MODEL)]
        fitting = [line for line in lines if {*named} <= {*line}]
        (line,) = fitting if len(fitting) == 1 else [line for line in fitting if f"{m}" in line]
        assert re.search(rf"(^|\(paper ){re.escape(expected)}([,)]| [a-z]|$)", line[header.index(column)])


@pytest.fixture(scope="module")
def shown(page_path):
    """The tables of the page of all experiments."""
    return Shown(page_path.parent / "tables")


@pytest.fixture(scope="module")
def paper(request):
    """The paper's tables as they were read from its source, or as they ship where that is not there."""
    path = request.config.rootpath.parent / "shared" / "paper" / "tables.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else published.tables()


def title(printed):
    return names.method(published.method_of(printed))


@pytest.mark.parametrize("table", published.TABLES)
def test_accuracies(shown, paper, table):
    m = paper[table].get("m", max(grids.shipped(table).shots))
    for row in paper[table]["rows"]:
        named = [title(row["method"]), *([f"{row['m']}"] if "m" in row else [])]
        named += [names.model(published.SIZES[row["model"]])] if row.get("model") else []
        printed = {
            task: f"{cell['mean']:.1f} ± {cell['std']:.1f}{' (†)' if cell.get('truncated') else ''}"
            for task, cell in row.get("scores", {}).items()
        }
        printed |= {task: f"{best:.1f} ({row['permille'][task]} ‰)" for task, best in row.get("best", {}).items()}
        assert printed
        for column, expected in (printed | ({"average": f"{row['avg']:.2f}"} if "avg" in row else {})).items():
            shown.check(expected, table, named, column, m)


def test_prior_reliance(shown, paper):
    for row in paper["prior_reliance"]["rows"]:
        printed = {f"λ = {float(ratio):g}": f"{mean:.1f}" for ratio, mean in row["ratio"].items()}
        printed |= {"average": f"{row['avg']:.2f}", "drop": f"{row['max_drop']:.2f}".replace("-", "−")}
        for column, expected in printed.items():
            shown.check(expected, "prior_reliance", [row["setting"], title(row["method"])], column)


def test_task_statistics(shown, paper):
    printed = paper["max_shots"]
    lines = {"classes": printed["num_classes"], "tokens of a template, mean": printed["average_template_tokens"]}
    for context, quantities in printed["context"].items():
        tokens = f"{int(context):,}"
        lines[f"shots that {tokens} tokens hold"] = quantities["max_shots"]
        lines[f"TP for {tokens} tokens: truncated prompts, %"] = quantities["truncation_percent"]
        lines[f"M_T for {tokens} tokens"] = quantities["M_T"]
    for line, numbers in lines.items():
        for task, number in zip(printed["tasks"], numbers, strict=True):
            shown.check(f"{number}", "max_shots", [line], task)


def test_released_accuracies(shown, paper):
    printed = paper["released_code_sst2"]
    for name, key in (("icl", "icl"), ("knn", "knn_prompting_1024")):
        for seed, accuracy in zip(printed["seeds"], printed[key], strict=True):
            named = [names.model(printed["model"]), names.method(name)]
            shown.check(f"{accuracy:.4f}", "sst2", named, f"seed {seed}")


def test_the_texts_spreads(shown):
    """Section 4.3: the spread of the smallest model with 32 shots is 3.83, and 9.14 of in-context learning."""
    for m, method, spread in (("32", "kNN Prompting", "3.83"), ("M_T", "In-context learning", "9.14")):
        shown.check(spread, "robustness_spread", ["gpt2-large (0.8B)", m, method], "spread")
