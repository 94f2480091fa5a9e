"""How results spread: box plots over seeds, and the accuracies of many prompts."""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax.report import drawing, names, scores
from knnprompt_jax.report.published import Printed
from knnprompt_jax.report.scores import Record

BOUND = "demonstration_upper_bound"


def boxes(name: str, caption: str, records: Sequence[Record], paper: Sequence[Printed] = ()) -> drawing.Figure:
    """Accuracy over seeds: a panel for each task, a box for each method and m, a dot for each seed; hollow: the paper's mean ± std."""
    methods = names.ordered("method", [record.method for record in records])
    panels = tuple(_boxes(title, part, _of_task(part, paper)) for title, part in names.panels(records))
    legend = {names.method(method): names.method_look(method) for method in methods}
    return drawing.Figure(name, caption, panels, drawing.legend(legend))


def _of_task(records: Sequence[Record], paper: Sequence[Printed]) -> list[Printed]:
    """The paper's numbers on the task of a panel's records."""
    return [number for number in paper if number.task == records[0].task]


def _boxes(title: str, records: Sequence[Record], paper: Sequence[Printed]) -> str:
    panel = drawing.Panel(title, "m, train rows per class", "accuracy, %")
    groups, printed = scores.pool(records, "m", "method"), scores.pool(paper, "m", "method")
    columns = names.ordered("m", [m for m, _ in groups])
    methods = names.ordered("method", [record.method for record in records])
    for (m, method), group in groups.items():
        here = [other for other in methods if (m, other) in groups]
        at = columns.index(m) + 0.3 * (here.index(method) - (len(here) - 1) / 2)
        colour = names.method_look(method).colour
        _box(panel, at, [100 * record.accuracy for record in group], colour)
        for number in printed.get((m, method), ()):
            hollow = {"markerfacecolor": "none", "linestyle": "none", "marker": "D", "color": colour}
            panel.axes.errorbar(
                [at + 0.14], [number.score.mean], [number.score.std], **hollow, elinewidth=0.8, alpha=0.8
            )
    panel.axes.set_xticks(range(len(columns)), [names.text("m", m) for m in columns])
    panel.axes.set_xlim(-0.6, len(columns) - 0.4)
    return panel.svg


def _box(panel: drawing.Panel, at: float, values: Sequence[float], colour: str) -> None:
    line = {"color": colour, "linewidth": 1}
    panel.axes.boxplot(
        values,
        positions=[at],
        widths=0.22,
        showfliers=False,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops={"color": colour, "linewidth": 2},
        manage_ticks=False,
    )
    panel.axes.plot(np.full(len(values), at), values, "o", color=colour, markersize=2.5, alpha=0.6)


def prompts(name: str, caption: str, records: Sequence[Record], paper: Sequence[Printed] = ()) -> drawing.Figure:
    """The accuracies of the prompts tried, beside those of other methods: a panel for each task; dotted: the paper's."""
    others = names.ordered("method", [record.method for record in records if record.method != BOUND])
    parts = [part for part in names.panels(records) if any(record.candidates for record in part[1])]
    panels = tuple(_histogram(title, part, _of_task(part, paper)) for title, part in parts)
    legend = {f"{names.method(method)}, mean ± std": names.method_look(method) for method in others}
    return drawing.Figure(name, caption, panels, drawing.legend(legend))


def _histogram(title: str, records: Sequence[Record], paper: Sequence[Printed]) -> str:
    tried = [100 * value for record in records for value in record.candidates]
    best = max(tried)
    panel = drawing.Panel(f"{title}: the best prompt has {best:.1f} %", "accuracy of a prompt, %", "prompts")
    panel.axes.hist(tried, bins="auto", color=drawing.GREY, alpha=0.45)
    panel.axes.axvline(best, color=drawing.GREY, linewidth=1)
    for (method,), group in scores.pool(records, "method").items():
        if method != BOUND:
            panel.level("v", names.method_look(method), scores.accuracy(group))
    for number in paper:
        colour = drawing.GREY if number.method == BOUND else names.method_look(number.method).colour
        panel.axes.axvline(number.score.mean, color=colour, linestyle=":", linewidth=1)
    return panel.svg
