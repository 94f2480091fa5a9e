"""Every number that the paper prints is on the page, unaltered, whatever was run."""

import html.parser
import json

import pytest

from knnprompt_jax.paper import experiments, page
from knnprompt_jax.report import names, published
from knnprompt_jax.runs import records

TABLES = tuple(published.TITLES)


class Tables(html.parser.HTMLParser):
    """The score tables of a page: by name the header, and for each line its names and the paper's text in each cell."""

    def __init__(self):
        super().__init__()
        self.found, self.line, self.inside = {}, None, ""

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "table":
            self.found[given.get("id", "")] = self.lines = []
        elif tag == "tr":
            self.line = ([], [])
            self.lines.append(self.line)
        elif tag == "th":
            self.line[0].append("")
        elif tag == "td":
            self.line[1].append("")
        self.inside = tag

    def handle_data(self, data):
        if self.inside == "th":
            self.line[0][-1] += data
        elif self.inside == "i" and self.line[1]:
            self.line[1][-1] += data

    def handle_endtag(self, tag):
        self.inside = ""

    def cell(self, table, named, column, m=None):
        """The paper's text in the one line that has all these names, in a column; of several lines, that of this m."""
        (header, _), *lines = self.found[f"table-{table}"]
        fitting = [line for line in lines if {*named} <= {*line[0]}]
        fitting = fitting if len(fitting) == 1 else [line for line in fitting if f"{m}" in line[0]]
        assert len(fitting) == 1, (table, named, len(fitting))
        return fitting[0][1][header.index(column) - len(fitting[0][0])]


@pytest.fixture(scope="module", params=["everything", "another model", "the page of the docs"])
def shown(request, results, page_path, make_record, tmp_path_factory):
    """The tables of a page of all experiments, of one with two records of a model that the paper does not have, and of ours."""
    path = page_path
    if request.param == "the page of the docs":
        path = request.config.rootpath / "docs" / "paper_report" / "index.html"
    if request.param == "another model":
        folder = tmp_path_factory.mktemp("other")
        for experiment, m, cell in (("low_resource", 64, {"regime": "full"}), ("few_shot", 8, {"regime": "few-shot"})):
            made = make_record(experiment, "trec", "knn", m, 1, model="tiny", cell=cell)
            records.write(folder / "results" / experiment, made)
        path = page.write(folder / "results", folder / "page")
    parser = Tables()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def paper(request):
    """The paper's tables as they were read from its source, or as they ship where that is not there."""
    path = request.config.rootpath.parent / "shared" / "paper" / "tables.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else published.tables()


def title(printed):
    return names.method(published.method_of(printed))


@pytest.mark.parametrize("table", TABLES)
def test_accuracies(shown, paper, table):
    count, m = 0, paper[table].get("m", max(experiments.get(table).shipped.shots))
    for row in paper[table]["rows"]:
        named = [title(row["method"])]
        named += [names.model(published.SIZES[row["model"]])] if row.get("model") else []
        named += [f"{row['m']}"] if "m" in row else []
        for task, cell in row.get("scores", {}).items():
            assert shown.cell(table, named, task, m) == f"{cell['mean']:.1f} ± {cell['std']:.1f}"
            count += 1
        for task, best in row.get("best", {}).items():
            assert shown.cell(table, named, task, m) == f"{best:.1f} ({row['permille'][task]} ‰)"
            count += 1
        if "avg" in row:
            assert shown.cell(table, named, "average", m) == f"{row['avg']:.2f}"
    assert count == sum(len(row.get("scores", row.get("best", {}))) for row in paper[table]["rows"]) > 0


def test_prior_reliance(shown, paper):
    for row in paper["prior_reliance"]["rows"]:
        named = [row["setting"], title(row["method"])]
        for ratio, mean in row["ratio"].items():
            assert shown.cell("prior_reliance", named, f"λ = {float(ratio):g}") == f"{mean:.1f}"
        for column, number in (("average", row["avg"]), ("drop", row["max_drop"])):
            assert shown.cell("prior_reliance", named, column) == f"{number:.2f}".replace("-", "−")


def test_task_statistics(shown, paper):
    printed = paper["max_shots"]
    lines = {"classes": printed["num_classes"], "tokens of a template, mean": printed["average_template_tokens"]}
    for context, quantities in printed["context"].items():
        tokens = f"{int(context):,}"
        lines[f"shots that {tokens} tokens hold"] = quantities["max_shots"]
        lines[f"TP for {tokens} tokens: prompts cut at so many, %"] = quantities["truncation_percent"]
        lines[f"M_T for {tokens} tokens"] = quantities["M_T"]
    for line, numbers in lines.items():
        for task, number in zip(printed["tasks"], numbers, strict=True):
            assert shown.cell("max_shots", [line], task) == f"{number}"


def test_released_accuracies(shown, paper):
    printed = paper["released_code_sst2"]
    for name, key in (("icl", "icl"), ("knn", "knn_prompting_1024")):
        for seed, accuracy in zip(printed["seeds"], printed[key], strict=True):
            named = [names.model(printed["model"]), names.method(name)]
            assert shown.cell("sst2", named, f"seed {seed}") == f"{accuracy:.4f}"


def test_the_texts_spreads(shown):
    """Section 4.3: the spread of the smallest model with 32 shots is 3.83, and 9.14 of in-context learning."""
    for m, method, spread in (("32", "kNN Prompting", "3.83"), ("M_T", "In-context learning", "9.14")):
        assert shown.cell("robustness_spread", ["gpt2-large (0.8B)", m, method], "spread") == spread
