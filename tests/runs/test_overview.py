"""Tables over records: what stands in which cell, from records made by hand."""

import dataclasses
import re

import pytest

from knnprompt_jax import errors
from knnprompt_jax.runs import overview, records


def record(
    method: str, seed: int, accuracy: float, task: str = "mr", shots: int = 7, **fields: object
) -> records.Record:
    return records.Record(
        task=task,
        model="gpt2",
        method=method,
        seed=seed,
        shots=shots,
        demo_shots=2,
        accuracy=accuracy,
        predicted=("0", "1", "1", "1"),
        true=("0", "1", "1", "0") if task == "mr" else ("0", "1", "1", "1"),
        settings={"seeds": [seed]},
        prompts=30,
        truncated_prompts=3,
        seconds={"language_model": 2.0 * seed, "method": 0.5 * seed},
        lm_tokens=1000 * seed,
        **fields,
    )


def cells(line: str) -> list[str]:
    return [cell for cell in line.replace("|", "  ").split("  ") if cell.strip()]


def rows(text: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in cells(line)] for line in text.splitlines() if line.strip()]
    return {line[0]: line[1:] for line in lines}


def test_of_a_comparison():
    chosen = {"note": "best of 2, CHOSEN", "candidates": (0.75, 0.25)}
    text = overview.of_comparison(
        [
            *(record("icl", seed, 0.25) for seed in (1, 2)),
            record("noisy_channel", 1, 0.75, **chosen),
            record("noisy_channel", 2, 0.75, **chosen | {"note": "another", "candidates": (0.75, 0.5)}),
        ]
    )
    assert "4 test rows, 2 seeds; 50.0 %" in text and "7 shots per class: 2 demonstrations" in text
    got = rows(text)
    assert got["In-context learning"] == ["25.0 ± 0.0", "0.75", "1,500"]
    assert got["Noisy channel"] == ["75.0 ± 0.0", "0.75", "1,500"]
    assert got["· mean of its 2"] == ["56.2 ± 8.8"] and got["· worst of its 2"] == ["37.5 ± 17.7"]
    assert "Noisy channel, seed 1: best of 2, CHOSEN." in text and "another" not in text
    assert "Shared pass: 3.0 s per seed" in text
    assert "6 of 60 prompts truncated (10.0 %): In-context learning, Noisy channel." in text


@pytest.mark.parametrize(("seconds", "told"), [(3.0, "3.0 s per seed, "), (0.0, "none; ")])
def test_a_pass_that_was_not_needed_has_no_speed(seconds, told):
    made = dataclasses.replace(record("icl", 1, 0.25), seconds={"language_model": seconds, "method": 0.75})
    assert f"Shared pass: {told}" in overview.of_comparison([made])


@pytest.mark.parametrize("markdown", [False, True])
def test_by_shots(markdown):
    done = [
        *(record("knn", seed, 0.5 + seed / 4) for seed in (1, 2)),
        *(record("icl", seed, 0.25, task) for task in ("mr", "trec") for seed in (1, 2)),
        record("knn", 1, 0.75, "trec"),
        record("icl", 1, 0.5, shots=128),
    ]
    few, many = overview.by_shots(done, markdown).split("128 shots per class, 1 seed\n")
    few = few.split("Macro F1")[0]
    assert "7 shots per class, 2 seeds" in few and few.count("| ---: |") == markdown
    assert rows(few)["method"] == ["mr", "trec"]
    assert rows(few)[overview.COMMONEST] == ["50.0", "75.0"]
    assert rows(few)["kNN Prompting"] == ["87.5 ± 17.7", "75.0 (1)"]
    assert few.index("In-context learning") < few.index("kNN Prompting"), "the registry's order"
    assert rows(many)["In-context learning"] == ["50.0"]


def test_records_of_different_settings_are_not_mixed():
    one, other = record("knn", 1, 0.5), record("knn", 1, 0.25)
    other = dataclasses.replace(other, settings={**one.settings, "options": {"k": 5}}, demo_shots=3)
    told = "2 records of knn on mr, 7 shots, seed 1, that differ in demo_shots (2, 3), options.k (, 5): keep them"
    with pytest.raises(errors.UserError, match=re.escape(told)):
        overview.by_shots([one, other])


def test_classes_of_the_same_size_stand_together_by_their_words():
    counts = {"demonstrations": 2, "anchors": 5}
    classes = {"0": {"word": "bad", **counts}, "1": {"word": "good", **counts}, "2": {**counts, "anchors": 3}}
    text = overview.of_comparison([record("icl", 1, 0.25, class_counts=classes)])
    assert "(demonstrations+anchors: 2+5 of bad, good; 2+3 of 2)" in text


@pytest.mark.parametrize("markdown", [False, True])
def test_macro_f1_is_shown_of_imbalanced_tasks(markdown):
    """Of four rows, three are of one class; all are taken for it but one, of the other."""
    done = [record("knn", 1, 0.75, task) for task in ("mr", "trec")]
    done[1] = dataclasses.replace(done[1], true=("0", "1", "1", "1"), predicted=("1", "1", "1", "1"))
    assert done[1].macro_f1 == pytest.approx((0 + 6 / 7) / 2)
    accuracy, f1 = overview.by_shots(done, markdown).split("Macro F1, where classes are of unequal size:\n")
    assert rows(accuracy)["method"] == ["mr", "trec"]
    assert (rows(f1)["method"], rows(f1)["kNN Prompting"]) == (["trec"], ["42.9"])
    assert rows(overview.of_comparison(done[1:]))["kNN Prompting"][:2] == ["75.0", "42.9"]
    assert rows(overview.of_comparison(done[:1]))["kNN Prompting"][:2] == ["75.0", "0.50"]
