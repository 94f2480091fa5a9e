"""The case study: a file beside each kNN record with the content of a map."""

import dataclasses
import pathlib

import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax import states as states_lib
from knnprompt_jax.paper import grid as grid_lib
from knnprompt_jax.paper.experiments import case_study
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import records
from knnprompt_jax.store import representations


def test_the_file_agrees_with_the_record_and_the_states(grid):
    grid = dataclasses.replace(grid, experiment="case_study", shots=(6,), seeds=(1,))
    grid_lib.run(grid)
    folder = pathlib.Path(grid.output) / "case_study"
    icl, knn = records.read_all(folder)
    study = case_study.read(case_study.path_of(folder, knn))
    assert not case_study.path_of(folder, icl).exists()
    words = dict(zip(study["classes"].tolist(), "01", strict=True))
    anchors = len(study["texts"]) - len(knn.true)
    assert tuple(words[label] for label in study["labels"][anchors:]) == knn.true
    assert tuple(words[label] for label in study["predictions"]) == knn.predicted
    assert tuple(words[label] for label in study["icl"][anchors:]) == icl.predicted
    planned = grid_lib.plan(dataclasses.replace(grid, output="elsewhere")).passes[0]
    problem = next(run.problem for run in planned.runs if run.problem.split.anchors)
    assert study["texts"][:anchors].tolist() == [row.fields["sentence"] for row in problem.split.anchors]
    assert [words[label] for label in study["labels"][:anchors]] == [row.label for row in problem.split.anchors]
    p_NV = _distributions(planned, problem)
    keys_NV, queries_QV = p_NV[:anchors], p_NV[anchors:]
    divergences_QN = (keys_NV[None] * np.log(keys_NV[None] / queries_QV[:, None])).sum(-1)
    np.testing.assert_array_equal(
        study["neighbours_Qk"], np.argsort(divergences_QN, axis=-1)[:, : case_study.NEIGHBOURS]
    )
    expected = np.take_along_axis(divergences_QN, study["neighbours_Qk"], -1)
    np.testing.assert_allclose(study["distances_Qk"], expected, rtol=1e-3, atol=1e-4)
    assert study["points"].shape == (len(p_NV), min(len(p_NV), case_study.COMPONENTS))
    hellinger = np.linalg.norm(np.sqrt(p_NV[:1]) - np.sqrt(p_NV), axis=-1)
    np.testing.assert_allclose(np.linalg.norm(study["points"][:1] - study["points"], axis=-1), hellinger, atol=1e-3)


def _distributions(planned, problem):
    """Return float64 next-token distributions of anchors, then test rows, from whole prompts without a shared prefix."""
    model = lm.LanguageModel.from_pretrained(str(planned.model.path))
    task = problem.task
    demonstrations = "".join(task.render(row, row.label) + "\n" for row in problem.split.demonstrations)
    tokens = model.tokenize(
        [demonstrations + task.render(row) for row in [*problem.split.anchors, *problem.evaluation]]
    )
    suffixes = tuple(np.array(each, np.int32) for each in tokens)
    group = layout.PromptGroup(np.zeros(0, np.int32), suffixes, np.arange(len(tokens)))
    states = states_lib.read(model, layout.Prompts((group,), len(tokens)))
    return np.exp(np.asarray(representations.log_probabilities(model.head, states), np.float64))


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"PK\x03\x04 cut short", "other arrays"])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "study.npz"
    if content == "other arrays":
        np.savez(path, points=np.zeros((2, 3)))
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(errors.UserError, match="study.npz: not a case study"):
        case_study.read(path)
