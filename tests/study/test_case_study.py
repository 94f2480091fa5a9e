"""The case study: a file beside each kNN record with the content of a map."""

import dataclasses
import pathlib

import numpy as np
import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.datastore import distances
from knnprompt_jax.inference import lm
from knnprompt_jax.inference import states as states_lib
from knnprompt_jax.report import records
from knnprompt_jax.study import case_study
from knnprompt_jax.study import paper_grid as grid_lib
from tests import prompt_groups

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
    p_NV = _distributions(group, problem)
    keys_NV, queries_QV = p_NV[: len(anchors)], p_NV[len(anchors) :]
    divergences_QN = (keys_NV[None] * np.log(keys_NV[None] / queries_QV[:, None])).sum(-1)
    for row, divergences_N in zip(rows, divergences_QN, strict=True):
        near = np.argsort(divergences_N)[: case_study.NEIGHBOURS]
        assert [index for index, _ in row.neighbours] == near.tolist()
        np.testing.assert_allclose([one for _, one in row.neighbours], divergences_N[near], rtol=1e-3, atol=1e-4)


def _distributions(group, problem):
    """Return the float64 distributions of anchors, then test rows, from whole prompts without a shared prefix."""
    model = lm.LanguageModel.from_pretrained(str(group.model.path))
    task = problem.task
    demonstrations = "".join(task.render(row, row.label) + "\n" for row in problem.split.demonstrations)
    tokens = model.tokenize(
        [demonstrations + task.render(row) for row in [*problem.split.anchors, *problem.evaluation]]
    )
    states = states_lib.read(model, prompt_groups.make(tokens))
    return np.exp(np.asarray(distances.log_probabilities(model.head, states), np.float64))


@pytest.mark.parametrize("content", [None, b"no JSON", b"{}", b"[]"])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "study.map"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(errors.UserError, match="study.map: not a case study"):
        case_study.read(path)
