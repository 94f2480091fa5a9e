"""The maps of a case study become one picture."""

import numpy as np
import pytest

from knnprompt_jax.report import maps
from knnprompt_jax.study import case_study
from tools import draw_case_study


def test_each_task_has_its_panel(tmp_path):
    anchor = maps.Point("a", "0", other="1")
    right = maps.Point("b", "1", prediction="1", other="0")
    wrong = maps.Point("c", "0", prediction="1", other="0")
    drawn = maps.Map("T", "", ("0", "1"), (anchor, right, wrong), np.array([[1.0, 2], [3, 4], [5, 6]]))
    for task in ("one", "two", "three"):
        case_study.write(tmp_path / f"{task}-model-knn.map", drawn)
    draw_case_study.draw(tmp_path, tmp_path / "maps.png", ("one", "two", "three"))
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileNotFoundError, match=r"no map four-\*"):
        draw_case_study.draw(tmp_path, tmp_path / "more.png", ("one", "four"))
