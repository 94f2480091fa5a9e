"""Records of every experiment with random accuracies, and the page of them."""

import dataclasses
import hashlib
import json
import pathlib
import xml.etree.ElementTree
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.report import drawing, maps, records
from knnprompt_jax.study import case_study, paper_tables
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks.task import Example, Task

TASKS = ("sst2", "trec")
CLASSES = {"sst2": 2, "trec": 6}
SEEDS = (1, 2, 3)
ROWS = 47
AXES = {"shots": (4, 8, 16, 32, 1024), "few_shots": (2, 8), "shares": (0.5, 0.25, 0.015625), "demo_shots": (1, 2)}


def record(experiment: str, task: str, method: str, shots: int, seed: int, **fields: Any) -> records.Record:
    """A record whose accuracy rises with the shots, the more for kNN Prompting."""
    rng = np.random.default_rng(zlib.crc32(repr((experiment, task, method, shots, seed, fields.get("cell"))).encode()))
    labels = [str(label) for label in range(CLASSES.get(task, 3))]
    wanted = min(0.97, 0.45 + (0.06 if method.startswith("knn") else 0.02) * np.log2(shots + 1) + 0.04 * rng.normal())
    true = rng.choice(labels, ROWS)
    predicted = np.where(rng.random(ROWS) < wanted, true, np.roll(true, 1))
    key = hashlib.sha256(repr([experiment, task, method, shots, seed, fields]).encode()).hexdigest()
    given = {
        "model": "gpt2-xl",
        "demo_shots": 2,
        "accuracy": float(np.mean(predicted == true)),
        "predicted": tuple(predicted.tolist()),
        "true": tuple(true.tolist()),
        "settings": {"options": {"distance": "reverse_kl"} if method == "knn" else {}, "seed": seed},
        "class_counts": {label: {"train": 99, "demonstrations": 2, "anchors": shots} for label in labels},
        "prompts": 101,
        "lm_tokens": 54_321,
        "environment": {"knnprompt_jax": "0.1.0", "jax": "0.11.2", "device": "cpu", "devices": "1"},
    } | fields
    name = f"{task}-{method}-m{shots}-seed{seed}-{key[:16]}.json"
    place = {"task": task, "method": method, "seed": seed, "shots": shots, "experiment": experiment}
    return records.Record(key=key, file_name=name, **place, **given)


def grid() -> Iterator[records.Record]:
    """Yield records of a part of each experiment's grid, for a model that holds eight demonstrations per class."""
    task = Task("two", ("text",), "{text}:", ("0", "1"), ("no", "yes"))
    rows = inputs.Rows(task, [Example({"text": f"{row}"}, str(row % 2), row) for row in range(80)], ())
    for name, declared in paper_tables.EXPERIMENTS.items():
        shipped, few = grids.shipped(name), {"seeds": SEEDS, "models": ("gpt2-xl",)}
        few |= {axis: tuple(v for v in getattr(shipped, axis, ()) if v in some) for axis, some in AXES.items()}
        settings = dataclasses.replace(shipped, **{axis: v for axis, v in few.items() if hasattr(shipped, axis)})
        for cell in dict.fromkeys(declared.cells(settings, rows, 8)) if name != "max_shots" else ():
            axes, method = dict(cell.axes), cell.method
            if axes.get("k", 1) not in (1, 3, 31):
                continue
            fields = {"cell": axes, "demo_shots": cell.draw.demo_shots, "note": "re-uses" if cell.reuses_icl else ""}
            fields |= {"truncated_prompts": 40 if cell.draw.demo_shots > 7 else 0}
            if method == "demonstration_upper_bound":
                fields["candidates"] = tuple(np.random.default_rng(5).normal(0.6, 0.07, 200).clip(0, 1).tolist())
            for task_name in TASKS[:1] if name == "sst2" else TASKS:
                yield record(name, task_name, method, cell.draw.shots, cell.draw.seed, **fields)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with records of every experiment, made with a model of the paper's."""
    folder = tmp_path_factory.mktemp("results")
    for made in grid():
        records.write(folder / made.experiment, made)
        if (made.experiment, made.method, made.seed) == ("case_study", "knn", 1):
            case_study.write(case_study.path_of(folder / "case_study", made), _case(made))
    (folder / "max_shots").mkdir()
    rows = [
        {"task": task, "num_classes": CLASSES[task], "average_template_tokens": 19.13}
        | {"context": context, "max_shots": shots, "truncated": 0.03, "m_t": 16}
        for task in TASKS
        for context, shots in ((1024, 20), (2048, 44))
    ]
    (folder / "max_shots" / "max_shots.json").write_text(json.dumps({"rows": rows}), encoding="utf-8")
    return folder


def _case(made: records.Record) -> maps.Map:
    """A case study of 61 anchors whose points lie near those of their class."""
    rng, classes = np.random.default_rng(5), [f"word {label}" for label in sorted(set(made.true))]
    y_N = np.concatenate([rng.integers(0, len(classes), 61), np.array(made.true, int)])
    points = [
        maps.Point(f"row {number} of the & <b>world</b>", classes[y], other=str(rng.choice(classes)))
        for number, y in enumerate(y_N)
    ]
    for number, predicted in enumerate(made.predicted, start=61):
        near = tuple(zip(rng.choice(61, 3, replace=False).tolist(), sorted(rng.random(3).tolist()), strict=True))
        points[number] = dataclasses.replace(points[number], prediction=classes[int(predicted)], neighbours=near)
    cases = [n for n, point in enumerate(points) if point.prediction == point.label != point.other][:5]
    positions_N2 = maps.layout(3 * rng.normal(size=(len(classes), 7))[y_N] + rng.normal(size=(len(y_N), 7)))
    named = {"labels": tuple(classes), "other": "In-context learning", "cases": tuple(cases)}
    return maps.Map("SST2", "A case study.", points=tuple(points), positions_N2=positions_N2, **named)


@pytest.fixture(scope="session")
def page_and_sections(results: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list]:
    """The page of those results, and its sections."""
    with drawing.style():
        drawn = paper_tables.sections(results)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_tables, "sections", lambda folder: drawn)
        return paper_tables.write(results, tmp_path_factory.mktemp("page")), drawn


@pytest.fixture(scope="session")
def page_path(page_and_sections: tuple[pathlib.Path, list]) -> pathlib.Path:
    """The page of those results."""
    return page_and_sections[0]


def svg_texts(svg: str) -> list[str]:
    """Return all texts of a well-formed SVG."""
    return [text.strip() for text in xml.etree.ElementTree.fromstring(svg).itertext() if text.strip()]


@pytest.fixture
def style() -> Iterator[None]:
    """The style of figures."""
    with drawing.style():
        yield


@pytest.fixture(scope="session")
def make_record() -> Callable[..., records.Record]:
    """The function `record`."""
    return record
