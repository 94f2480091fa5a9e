"""Tables of docs/reliability.md from the records of `measure_reliability`, in Markdown."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax.report import names
from tools import markdown, measure_reliability
from tools.measure_reliability import PROMISES, Unit

Record = Mapping[str, Any]
Records = Mapping[Unit, Record]

REST = "rest"  # Rows of the pool that were not drawn: the same mixture as the train rows.
_OTHERS = {"ood-oos": "of other domains", "id-oos": "of 27 other banking intents"}
_RANKINGS = {"look": "`look`", "self_confidence": "cleanlab"}


def promises(records: Records) -> str:
    """Return what became of the promises for each task, at its largest m."""
    header = ["task", "m", "runs", "accuracy", "ECE"]
    for promise in PROMISES:
        header += [f"{100 * promise:.0f} %: promised", "kept", "answered", "at best"]
    largest = dict(found for found, _ in _grouped(records, "promises"))
    rows = []
    for (task, m), runs in _grouped(records, "promises"):
        if m == largest[task]:
            accuracy = statistics.fmean(run[REST]["right"] / run[REST]["rows"] for run in runs)
            row = [_title(task), str(m), str(len(runs)), _percent(accuracy), _percent(_calibration_error(runs))]
            for index in range(len(PROMISES)):
                row += _outcome(_with_promise(runs, index), index)
            rows.append(row)
    return markdown.table(header, rows)


def num_runs(records: Records) -> int:
    """Return the number of runs that could make promises."""
    return len(_runs(records, "promises"))


def kept(records: Records, promise: float, texts: str = REST, if_given: bool = False) -> str:
    """Return the share of runs that kept a promise on one kind of texts, in %.

    Args:
        if_given: leave out the runs that could not promise anything, and so answered nothing.
    """
    index = PROMISES.index(promise)
    runs = _runs(records, "promises")
    given = _with_promise(runs, index)
    num_broken = sum(not _is_kept(run, texts, index) for run in given)
    return _percent(1 - num_broken / len(given if if_given else runs))


def promised(records: Records, promise: float, m: int) -> str:
    """Return in how many runs at m a promise could be made."""
    runs = _runs(records, "promises", m)
    return f"{len(_with_promise(runs, PROMISES.index(promise)))} of {len(runs)}"


def wrong(records: Records, promise: float) -> str:
    """Return the share of wrong answers among those of all runs, in %."""
    index = PROMISES.index(promise)
    rows = [run[REST]["promises"][index] for run in _with_promise(_runs(records, "promises"), index)]
    return _percent(sum(num_wrong for _, num_wrong, _ in rows) / sum(answered for answered, _, _ in rows))


def calibration_error(records: Records, m: int) -> str:
    """Return the mean over tasks of the expected calibration error at m, in %."""
    return _percent(
        statistics.fmean(_calibration_error(runs) for (_, at), runs in _grouped(records, "promises") if at == m)
    )


def novelty(records: Records) -> str:
    """Return areas under the curve, recall and accuracy for each m and kind of texts out of scope."""
    header = ["train rows per intent", "texts out of scope", "area under the curve"]
    header += [f"{name} at {level}" for level in measure_reliability.REJECTED for name in ("recall", "accuracy")]
    rows = []
    for (task, m), [record] in _grouped(records, "novelty"):
        for others in measure_reliability.OUT_OF_SCOPE[task]:
            row = [
                str(m),
                f"{record[others][0]['rows']:,} {_OTHERS[others]}",
                _percent(record[others][0]["area_under_curve"]),
            ]
            for scope in record[others]:
                row += [_percent(scope["recall"]), _percent(scope["in_scope_accuracy"])]
            rows.append(row)
    return markdown.table(header, rows, left=2)


def novelty_rows(records: Records) -> str:
    """Return the number of test rows that texts out of scope are told from."""
    [rows] = {run["test_rows"] for run in _runs(records, "novelty")}
    return f"{rows:,}"


def labels(records: Records) -> str:
    """Return for each task the share of labels that the rule needs for the accuracy of as many rows drawn at random."""
    rows = []
    for (task, _), runs in _grouped(records, "labels"):
        at_random = statistics.fmean(run["at_random"] for run in runs)
        steps = runs[0]["steps"]
        accuracies = np.mean([run["accuracies"] for run in runs], 0)
        share = needed(accuracies, at_random, steps) / steps[-1]
        accuracy = _percent(accuracies[-1])
        needs = _percent(share) if share <= 1 else "over 100"
        rows.append([_title(task), str(len(runs)), _percent(at_random), accuracy, needs])
    header = ["task", "runs", "at random", "chosen by `look`", "labels needed"]
    return markdown.table(header, rows)


def label_steps(records: Records) -> Sequence[int]:
    """Return the numbers of labelled rows per class of the runs that choose them in steps."""
    return _runs(records, "labels")[0]["steps"]


def planted(records: Records, first: int) -> str:
    """Return for each task the share of planted errors among the `first` rows of each ranking, in %."""
    rows = []
    found = []
    for (task, _), runs in _grouped(records, "planted"):
        recall = [[np.mean(np.less(run["ranks"][name], first)) for name in _RANKINGS] for run in runs]
        found.append(np.mean(recall, 0))
        rows.append([_title(task), str(len(runs)), *map(_percent, found[-1])])
    rows.append(["mean", "", *map(_percent, np.mean(found, 0))])
    return markdown.table(["task", "runs", *_RANKINGS.values()], rows)


def num_planted(records: Records) -> str:
    """Return the number of planted errors in a run."""
    return names.span(len(ranks) for run in _runs(records, "planted") for ranks in run["ranks"].values())


def planted_rows(records: Records) -> str:
    """Return the number of rows in a run with planted errors."""
    return names.span(run["train_rows"] for run in _runs(records, "planted"))


def needed(accuracies: Sequence[float], target: float, steps: Sequence[int]) -> float:
    """Return the number of labels per class, interpolated, at which the accuracy reaches the target; inf if never."""
    for index, accuracy in enumerate(accuracies):
        if accuracy >= target:
            if not index:
                return steps[0]
            share = (target - accuracies[index - 1]) / (accuracy - accuracies[index - 1])
            return steps[index - 1] + share * (steps[index] - steps[index - 1])
    return float("inf")


def _outcome(given: Sequence[Record], index: int) -> list[str]:
    """Return the runs with a promise and that kept it, and the shares of texts that were and could be answered."""
    if not given:
        return ["0", "–", "–", "–"]
    num_kept = sum(_is_kept(run, REST, index) for run in given)
    shares = []
    for column in (0, 2):
        answered = (run[REST]["promises"][index][column] / run[REST]["rows"] for run in given)
        shares.append(_percent(statistics.fmean(answered)))
    return [str(len(given)), str(num_kept), *shares]


def _is_kept(run: Record, texts: str, index: int) -> bool:
    answered, wrong, _ = run[texts]["promises"][index]
    return wrong <= PROMISES[index] * answered


def _with_promise(runs: Iterable[Record], index: int) -> list[Record]:
    return [run for run in runs if run[REST]["promises"][index][0] is not None]


def _calibration_error(runs: Iterable[Record]) -> float:
    return statistics.fmean(run[REST]["calibration_error"] for run in runs)


def _runs(records: Records, part: str, m: int | None = None) -> list[Record]:
    """Return the runs of a part; only those at m if it is given."""
    return [records[unit] for unit in sorted(records) if unit.part == part and m in (None, unit.m)]


def _grouped(records: Records, part: str) -> Iterator[tuple[tuple[str, int], list[Record]]]:
    """Yield the runs of each task and m, in the order of the tasks."""
    for task in (*measure_reliability.TASKS, *measure_reliability.INTENTS):
        for m in sorted({unit.m for unit in records if (unit.part, unit.task) == (part, task)}):
            yield (task, m), [records[unit] for unit in sorted(records) if unit[:3] == (part, task, m)]


def _title(task: str) -> str:
    return task.upper() if task in measure_reliability.INTENTS else names.task(task)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
