"""Records of every experiment with random accuracies, and the page of them."""

import hashlib
import itertools
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from knnprompt_jax.paper import page
from knnprompt_jax.paper.experiments import case_study
from knnprompt_jax.report import drawing
from knnprompt_jax.runs import records

TASKS = ("sst2", "trec")
CLASSES = {"sst2": 2, "trec": 6}
SEEDS = (1, 2, 3)
ROWS = 47
FULL, FEW = {"regime": "full"}, {"regime": "few-shot"}


def record(experiment: str, task: str, method: str, shots: int, seed: int, **fields: Any) -> records.Record:
    """A record whose accuracy rises with the shots, the more for kNN Prompting."""
    rng = np.random.default_rng(zlib.crc32(repr((experiment, task, method, shots, seed, fields.get("cell"))).encode()))
    labels = [str(label) for label in range(CLASSES.get(task, 3))]
    wanted = min(0.97, 0.45 + (0.06 if method.startswith("knn") else 0.02) * np.log2(shots + 1) + 0.04 * rng.normal())
    true = rng.choice(labels, ROWS)
    predicted = np.where(rng.random(ROWS) < wanted, true, np.roll(true, 1))
    given = {
        "model": "gpt2-xl",
        "demo_shots": 2,
        "settings": {"options": {"distance": "released"} if method.startswith("knn") else {}, "seed": seed},
        "class_counts": {label: {"train": 99, "demonstrations": 2, "anchors": shots} for label in labels},
        "prompts": 101,
        "lm_tokens": 54_321,
        "environment": {"knnprompt_jax": "0.1.0", "jax": "0.11.2", "device": "cpu", "devices": "1"},
    } | fields
    place = json.dumps([experiment, task, method, shots, seed, fields], default=str)
    key = hashlib.sha256(place.encode()).hexdigest()
    return records.Record(
        key=key,
        file_name=f"{task}-{method}-m{shots}-seed{seed}-{key[:16]}.json",
        task=task,
        method=method,
        seed=seed,
        shots=shots,
        accuracy=float(np.mean(predicted == true)),
        predicted=tuple(predicted.tolist()),
        true=tuple(true.tolist()),
        experiment=experiment,
        **given,
    )


def grid() -> Iterator[records.Record]:
    """Yield records of every experiment whose tables or figures differ in kind from the others'."""
    for task, seed in itertools.product(TASKS, SEEDS):
        own = [("sst2", "icl", 16, {}), ("sst2", "knn", 1024, {})] if task == "sst2" else []
        for experiment, method, shots, fields in [*_runs(seed), *own]:
            yield record(experiment, task, method, shots, seed, **fields)


def _runs(seed: int) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """Yield the experiment, method, shots and further fields of the runs on one task."""
    for m in (2, 4, 8, 16):
        shown = {"demo_shots": m, "cell": FEW, "truncated_prompts": 40 if m > 8 else 0}
        for method in ("icl", "contextual_calibration", "noisy_channel"):
            yield "few_shot", method, m, shown
        for method in ("knn", "knn_partial"):
            yield "few_shot", method, m, {"demo_shots": 1, "cell": FEW}
        yield "data_scaling", "icl", m, shown
        yield "data_scaling", "knn", m, {"demo_shots": 1, "cell": FEW}
    yield "data_scaling", "icl", 8, {"cell": FULL}
    yield "fine_tuning", "icl", 8, {"cell": FULL}
    for m in (32, 64, 128):
        for model in ("gpt2-large", "gpt2-xl"):
            yield "data_scaling", "knn", m, {"model": model, "cell": FULL}
        yield "fine_tuning", "knn", m, {}
        yield "fine_tuning", "fine_tuning_gpt2", m, {"model": "gpt2-large"}
        yield "robustness", "knn", m, {}
        yield "robustness", "icl", 8, {}
    yield "upper_bound", "icl", 8, {}
    yield "upper_bound", "knn", 1024, {}
    candidates = tuple(np.random.default_rng(seed).normal(0.6, 0.07, 200).clip(0, 1).tolist())
    yield "upper_bound", "demonstration_upper_bound", 1024, {"candidates": candidates}
    for demo_shots, anchor_shots in ((0, 2), (0, 4), (1, 2), (1, 4), (2, 2), (4, 0)):
        note = "" if anchor_shots else "re-uses in-context learning: |D| = m"
        fields = {"demo_shots": demo_shots, "cell": {"anchor_shots": anchor_shots}, "note": note}
        yield "split_strategy", "knn", demo_shots + anchor_shots, fields
    for setting, ratio in itertools.product("ABC", (0.125, 0.25, 0.5)):
        for method in ("icl", "contextual_calibration_trainset", "knn"):
            yield "prior_reliance", method, 8, {"cell": {"setting": setting, "ratio": ratio, **FEW}}
    for k in (1, 3, 7, 15, 31):
        yield "choice_of_k", "knn", 32, {"cell": {"k": k, **FEW}}
    for (cell, m), ratio, method in itertools.product(
        ((FEW, 32), (FULL, 1024)), (0.5, 0.25, 0.015625), ("knn", "knn_centroid")
    ):
        yield "imbalance", method, m, {"cell": {"ratio": ratio, **cell}}
    yield "case_study", "knn", 32, {}


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with records of every experiment, made with a model of the paper's."""
    folder = tmp_path_factory.mktemp("results")
    for made in grid():
        records.write(folder / made.experiment, made)
        if made.experiment == "case_study" and made.seed == 1:
            _write_case(case_study.path_of(folder / "case_study", made), made)
    (folder / "max_shots").mkdir()
    rows = [
        {"task": task, "num_classes": CLASSES[task], "average_template_tokens": 19.13}
        | {"context": context, "max_shots": shots, "truncated": 0.03, "m_t": 16}
        for task in TASKS
        for context, shots in ((1024, 20), (2048, 44))
    ]
    (folder / "max_shots" / "max_shots.json").write_text(json.dumps({"rows": rows}), encoding="utf-8")
    return folder


def _write_case(path: pathlib.Path, made: records.Record) -> None:
    rng, anchors, labels = np.random.default_rng(5), 61, sorted(set(made.true))
    texts = "{} {} of the & <b>world</b>"
    anchor_labels = rng.choice(labels, anchors)
    true = np.array(made.true)
    centres = {label: 3 * rng.normal(size=7) for label in labels}
    near = np.array([rng.choice(anchors, 3, replace=False) for _ in true])
    np.savez_compressed(
        path,
        labels=np.array(labels),
        label_words=np.array([f"word {label}" for label in labels]),
        anchor_texts=np.array([texts.format("anchor", number) for number in range(anchors)]),
        anchor_labels=anchor_labels,
        anchors_icl=rng.choice(labels, anchors),
        texts=np.array([texts.format("row", number) for number in range(len(true))]),
        true=true,
        knn=np.array(made.predicted),
        icl=rng.choice(labels, len(true)),
        neighbours_Qk=near,
        distances_Qk=np.sort(rng.random(near.shape), axis=1),
        points=np.array([centres[label] + rng.normal(size=7) for label in (*anchor_labels, *true)], np.float32),
    )


@pytest.fixture(scope="session")
def page_and_sections(results: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list]:
    """The page of those results, and its sections."""
    with drawing.style():
        drawn = page.sections(page.read(results), results)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "sections", lambda *arguments: drawn)
        return page.write(results, tmp_path_factory.mktemp("page")), drawn


@pytest.fixture(scope="session")
def page_path(page_and_sections: tuple[pathlib.Path, list]) -> pathlib.Path:
    """The page of those results."""
    return page_and_sections[0]


@pytest.fixture
def style() -> Iterator[None]:
    """The style of figures."""
    with drawing.style():
        yield


@pytest.fixture(scope="session")
def make_record() -> Callable[..., records.Record]:
    return record
