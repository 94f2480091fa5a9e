"""The comparison of exact search with an index of inverted lists."""

from tools import compare_index


def test_reads_the_fewest_lists_with_the_same_predictions(demo_classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(compare_index, "QUERIES", 7)
    monkeypatch.setattr(compare_index, "REPETITIONS", 1)
    demo_classifier.save(tmp_path / "store")
    rows = list(compare_index.compare(str(tmp_path / "store"), [13, 41]))
    assert [row[:2] for row in rows] == [("13", 1), ("13", 7), ("41", 1), ("41", 7)]
    for *_, lists, read, recall in rows:
        assert lists in (13, 26) and read in (2, 4, 8, 16, 32) and read < 2 * lists
        assert float(recall) > 0.5
