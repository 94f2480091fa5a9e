"""The end-to-end benchmark times a classifier in a process of its own, on rows that it was not fitted on."""

from tools import benchmark_classifiers


def settings(**changes):
    values = {"model": "tiny", "task": "demo", "rows": 24, "procedures": ("knn",), "split": "train"}
    return benchmark_classifiers.ClassifierSettings(**values | changes)


def test_a_classifier_is_timed():
    result = benchmark_classifiers.run(settings())
    (row,) = result["classifiers"]
    assert row["procedure"] == benchmark_classifiers.PROCEDURES["knn"]
    assert row["fit_seconds"] > 0 < row["predict_seconds"]
    assert 100 / 6 < row["accuracy_percent"] <= 100  # Six classes.
