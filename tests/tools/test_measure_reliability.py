"""The measurements of docs/reliability.md: units, records that are kept, and their counts."""

import json

import pytest

from tools import measure_reliability

WORDS = {"0": ["dull", "bad", "stale", "weak"], "1": ["fine", "good", "fresh", "strong"]}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Return a folder with a task and a folder of intents, whose words tell the class."""
    folder = tmp_path_factory.mktemp("data")
    names = [chr(97 + i % 26) * 3 + chr(97 + i // 26) * 3 for i in range(70)]  # Texts are no near copies.
    texts = [(f"{WORDS[label][i % 4]} plot {names[i]}", label) for i in range(70) for label in "01"]
    (folder / "sst2").mkdir()
    for split, rows in (("train", texts[:80]), ("dev", texts[80:100])):
        lines = [json.dumps({"sentence": text, "label": label}) for text, label in rows]
        (folder / "sst2" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "banking50").mkdir()
    for split, rows in (("train", texts[:60]), ("test", texts[60:80])):
        lines = [f"{text},{'lost' if label == '0' else 'found'}" for text, label in rows]
        (folder / "banking50" / f"{split}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    for split in ("ood-oos", "id-oos"):
        (folder / "banking50" / f"{split}.csv").write_text("text\nzwölf Katzen\n中文\n")
    return folder


@pytest.fixture
def measured(data_dir, tmp_path, monkeypatch):
    """Return a function that measures a part with the smallest model, and returns its records."""
    monkeypatch.setattr(measure_reliability, "CACHE", None)
    monkeypatch.setattr(measure_reliability, "STEPS", (4, 8))
    monkeypatch.setattr(measure_reliability, "NOVELTY_SHOTS", (20,))
    monkeypatch.setattr(measure_reliability, "PLANTED_ROWS", 46)
    monkeypatch.setattr(measure_reliability, "NUM_PLANTED", 3)
    monkeypatch.setitem(measure_reliability.TASKS, "sst2", measure_reliability.Rows(70, "dev", 17, (23,)))
    path = tmp_path / "records.jsonl.gz"

    def run(part, task, seeds=1):
        arguments = [part, f"--data_dir={data_dir}", f"--tasks={task}", f"--seeds={seeds}", "--model=tiny"]
        measure_reliability.run(measure_reliability.parse([*arguments, f"--records={path}"]))
        return list(measure_reliability.load(path).values())

    return run


def test_promises_are_measured_on_the_rest_of_the_pool_and_on_test_rows(measured, monkeypatch):
    [record] = measured("promises", "sst2")
    assert (record["unit"], record["train_rows"]) == (["promises", "sst2", 23, 1], 46)
    for part, count in (("rest", 24), ("test", 17)):
        found = record[part]
        assert found["rows"] == count >= found["right"] > count / 2
        for answered, wrong, ideal in found["promises"]:
            assert answered is None or 0 <= wrong <= answered <= count
            assert 0 <= ideal <= count
    monkeypatch.setattr(measure_reliability, "measure_promises", lambda *_: pytest.fail("measured twice"))
    assert measured("promises", "sst2") == [record]


def test_texts_out_of_scope_are_told_from_test_rows(measured):
    [record] = measured("novelty", "banking50")
    assert record["unit"] == ["novelty", "banking50", 20, 1] and record["test_rows"] == 20
    for name in ("ood-oos", "id-oos"):
        at_levels = record[name]
        assert [one["reject_novel"] for one in at_levels] == [0.02, 0.05]
        assert all(one["rows"] == 2 and one["area_under_curve"] > 0.5 for one in at_levels)


def test_rows_are_labelled_in_steps(measured):
    [record] = measured("labels", "sst2")
    assert record["steps"] == [4, 8] and len(record["accuracies"]) == 2
    assert 0.5 < record["at_random"] <= 1


def test_planted_errors_rank_first_where_words_tell_the_class(measured):
    [record] = measured("planted", "sst2")
    assert (record["unit"], record["train_rows"]) == (["planted", "sst2", 23, 1], 46)
    assert [*record["ranks"]] == ["look", "self_confidence"]
    for ranks in record["ranks"].values():
        assert ranks == sorted(set(ranks)) and len(ranks) == 3
        assert ranks[0] >= 0 and ranks[-1] < 6
