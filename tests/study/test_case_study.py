"""The case study: a file beside each kNN record with the content of a map."""

import dataclasses
import pathlib

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.report import records
from knnprompt_jax.study import case_study
from knnprompt_jax.study import paper_grid as grid_lib

pytestmark = pytest.mark.usefixtures("loaded_once")


def test_the_file_agrees_with_the_record_and_the_states(grid):
    grid = dataclasses.replace(grid, experiment="case_study", shots=(6,), seeds=(1,))
    grid_lib.run(grid)
    folder = pathlib.Path(grid.output) / "case_study"
    icl, knn = records.read_all(folder)
    study = case_study.read(case_study.path_of(folder, knn))
    assert not case_study.path_of(folder, icl).exists()
    words = dict(zip(study.labels, "01", strict=True))
    rows = [point for point in study.points if point.prediction]
    anchors = study.points[: -len(rows)]
    assert tuple(words[row.label] for row in rows) == knn.true
    assert tuple(words[row.prediction] for row in rows) == knn.predicted
    assert tuple(words[row.other] for row in rows) == icl.predicted
    group = grid_lib.plan(dataclasses.replace(grid, output="elsewhere"))[0]
    problem = next(run.problem for run in group.runs if run.problem.split.anchors)
    expected = [(row.fields["sentence"], row.label) for row in problem.split.anchors]
    assert [(point.text, words[point.label]) for point in anchors] == expected
    for row in rows:
        indices, distances = zip(*row.neighbours, strict=True)
        assert len({*indices} & {*range(len(anchors))}) == case_study.NEIGHBOURS
        assert list(distances) == sorted(distances)


@pytest.mark.parametrize("content", [None, b"no JSON", b"{}", b"[]"])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "study.map"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(errors.UserError, match="study.map: not a case study"):
        case_study.read(path)
