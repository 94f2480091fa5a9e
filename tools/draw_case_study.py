"""Draw docs/case_study.png: the maps of a case study, side by side.

python experiments/paper.py --config=configs/case_study.py --models=smollm2 --direction=kl
python tools/draw_case_study.py results/case_study
"""

import math
import pathlib
import sys

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import figure

from knnprompt_jax.report import drawing, maps
from knnprompt_jax.study import case_study

PATH = pathlib.Path(__file__).parents[1] / "docs" / "case_study.png"
_TASKS = ("sst2", "mr", "trec", "agnews")


def draw(folder: pathlib.Path, path: pathlib.Path = PATH, tasks: tuple[str, ...] = _TASKS) -> None:
    """Draw the map of each task in the folder, in a grid of two columns; raise FileNotFoundError without a map."""
    num_rows = math.ceil(len(tasks) / 2)
    with drawing.style():
        drawn = figure.Figure(figsize=(8.0, 3.4 * num_rows), layout="constrained", facecolor="white")
        panels = drawn.subplots(num_rows, 2, squeeze=False).flat
        for axes, task in zip(panels, tasks, strict=False):
            _draw(axes, case_study.read(_find(folder, task)))
        drawn.savefig(path, dpi=110, metadata={"Software": None})


def _find(folder: pathlib.Path, task: str) -> pathlib.Path:
    for path in folder.glob(f"{task}-*.map"):
        return path
    raise FileNotFoundError(f"{folder}: no map {task}-*")


def _draw(axes: axes_lib.Axes, shown: maps.Map) -> None:
    """Draw anchors as small points, test rows as marks, and rings around those that only kNN Prompting has right."""
    labels_N = np.array([point.label for point in shown.points])
    is_anchor_N = np.array([point.kind == "anchor" for point in shown.points])
    is_case_N = np.array([point.kind == "right" and point.other != point.label for point in shown.points])
    x_N, y_N = shown.positions_N2.T
    for index, label in enumerate(shown.labels):
        is_label_N = labels_N == label
        options = {"color": drawing.line_style(index)["color"], "marker": drawing.line_style(index)["marker"]}
        axes.scatter(x_N[is_label_N & is_anchor_N], y_N[is_label_N & is_anchor_N], s=7, alpha=0.35, **options)
        axes.scatter(x_N[is_label_N & ~is_anchor_N], y_N[is_label_N & ~is_anchor_N], s=13, label=label, **options)
    axes.scatter(x_N[is_case_N], y_N[is_case_N], s=48, facecolors="none", edgecolors="black", linewidths=0.6)
    axes.set(title=shown.title, xticks=[], yticks=[])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False)


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]))
