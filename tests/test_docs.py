"""Every snippet of these documents runs, in the order in which it stands there, beside the files that it shows."""

import pathlib
import re

import pytest
import yaml

from knnprompt_jax.common import options
from knnprompt_jax.models import hub
from tests import shell
from tests.cli import test_options_all

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:`(?P<name>[\w.]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name: str) -> list[re.Match[str]]:
    return list(BLOCK.finditer((ROOT / "docs" / name).read_text(encoding="utf-8")))


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    """The tiny model in the place of SmolLM2, which the snippets load by default."""
    tiny = hub.locate("tiny")
    monkeypatch.setattr(hub, "locate", lambda name: tiny)


@pytest.mark.parametrize("pages", [("api.md",), ("own_data.md", "predict.md"), ("datastores.md",)], ids=" ".join)
def test_snippets_run(pages, tmp_path, monkeypatch):
    """Pages of one entry run in the same folder: predict.md uses the classifier of own_data.md."""
    monkeypatch.chdir(tmp_path)
    for page in pages:
        run(page)
    if "own_data.md" in pages:
        assert len(pathlib.Path("answers.jsonl").read_text().splitlines()) == 2
        assert pathlib.Path("labels.csv").read_text(encoding="utf-8-sig").startswith("row,id,text,label,")


def run(page: str) -> None:
    """Run the snippets of a page in the working directory."""
    found, names = blocks(page), {}
    assert {block["kind"] for block in found} <= {"python", "bash", "yaml", "csv"}
    for block in found:
        if block["name"]:
            pathlib.Path(block["name"]).write_text(block["text"], encoding="utf-8")
        elif block["kind"] == "python":
            exec(compile(block["text"], page, "exec"), names)
        elif block["kind"] == "bash":
            for line in block["text"].splitlines():
                shell.run(line)
        else:
            assert isinstance(yaml.safe_load(block["text"]), dict)


def test_readme_snippets_run(tmp_path, monkeypatch, capsys):
    """Those in Python; its commands set up environments, or need models and data that are not here."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    snippets = [block["text"] for block in BLOCK.finditer(text) if block["kind"] == "python"]
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})
    assert (tmp_path / "python_classifier").is_file() and "label outage" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["CHANGELOG.md", "CONTRIBUTING.md", *PAGES])
def test_links_lead_to_files_and_headings(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            file, _, heading = target.partition("#")
            linked = path.parent / file if file else path
            assert linked.exists(), target
            assert not heading or heading in headings(linked), target


def headings(path: pathlib.Path) -> set[str]:
    """Return the names by which GitHub links to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_flags_exist(page):
    """Each flag of a command line is an option of its binary."""
    text = re.sub(r" *\\\n *", " ", (ROOT / page).read_text(encoding="utf-8"))
    for file, command, rest in re.findall(r"(?:python experiments/(\w+)\.py|knnprompt (\w+)(?= --))(.*)", text):
        name, rest = file or command, rest.partition("#")[0].partition("`")[0]
        config = re.search(r"--config=configs/\w+\.py(:\w+)?", rest)
        kind = test_options_all.begin(name, *([config[0]] if config else []), "--help")[2]
        names = {option for option, _, _ in options.declarations(kind)} | {"help", "helpfull", "config"}
        assert set(re.findall(r" --([\w.]+)", rest)) <= names, rest
