"""What the language model reads together: the runs on a task and model after the same demonstrations."""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax.methods import method, registry
from knnprompt_jax.models import registry as models
from knnprompt_jax.paper import cells, own_passes, subjects
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import records
from knnprompt_jax.tasks.task import Example

_DECISIVE = (
    *("split", "rows", "restore_dropped", "drop_duplicates", "label_token", "direction"),
    *("dtype", "revision", "hub"),
)


@dataclasses.dataclass(frozen=True)
class Run:
    """A cell with its problem and the record it is to become, which lacks the outcome alone."""

    cell: cells.Cell
    problem: method.Problem
    options: Mapping[str, Any]
    record: records.Record
    own: own_passes.Cost


@dataclasses.dataclass(frozen=True)
class Pass:
    """Runs on the same task and model after the same demonstrations: each prompt of theirs is read once."""

    subject: subjects.Subject
    runs: tuple[Run, ...]

    @property
    def demonstrations(self) -> Sequence[Example]:
        return self.runs[0].problem.split.demonstrations

    @functools.cached_property
    def queries(self) -> dict[str, Example]:
        """The shared pass's prompts: an example for each text."""
        return {
            run.problem.task.render(example): example
            for run in self.runs
            for needed in run.cell.declared.needs
            for example in needed(run.problem)
        }

    @functools.cached_property
    def cost(self) -> own_passes.Cost:
        """Prompts and, to within a few a prompt, tokens: a prefix once, or whole contexts where prompts are too long for it."""
        task, model = self.subject.rows.task, self.subject.model
        lengths = model.lengths(list(self.queries))
        prefix = int(model.lengths([task.render(row, row.label) + "\n" for row in self.demonstrations]).sum())
        fits = prefix + lengths <= model.config.num_positions
        tokens = int(lengths[fits].sum()) + prefix * bool(fits.any()) + model.config.num_positions * int((~fits).sum())
        own = np.array([run.own for run in self.runs])
        return own_passes.Cost(len(lengths) + int(own[:, 0].sum()), tokens + int(own[:, 1].sum()))

    @property
    def work(self) -> float:
        """What it costs beside other models' passes."""
        return self.cost.tokens * float(models.num_parameters(self.subject.model.config))


def of_subject(
    settings: settings_lib.GridSettings, subject: subjects.Subject, own: Sequence[cells.Cell], checked: set[str]
) -> Iterator[Pass]:
    """The cells of a subject, put together by demonstrations; those with fewer demonstrations first.

    Without demonstrations, where a model is trained, each is on its own. `checked` holds methods and options that have been
    tried; a UserError tells what does not apply or cannot run.
    """
    environment = records.environment()
    by_demonstrations = collections.defaultdict(list)
    for cell in own:
        problem, options = subject.problem(cell), cell.options(settings)
        _check(cell, problem, options, checked)
        key = tuple(row.row for row in problem.split.demonstrations) or (cell,)
        cost = own_passes.estimate(cell.declared, problem, subject.model, options)
        draft = _draft(settings, subject, cell, problem, options, environment)
        by_demonstrations[key].append(Run(cell, problem, options, draft, cost))
    for key in sorted(by_demonstrations, key=len):
        yield Pass(subject, tuple(by_demonstrations[key]))


def _check(cell: cells.Cell, problem: method.Problem, options: Mapping[str, Any], checked: set[str]) -> None:
    """Raises UserError where a method does not apply or cannot run with its options, which are tried once."""
    one = cell.declared
    registry.select([one.name], problem)
    if (key := repr((one.name, options))) not in checked:
        one.prepare(problem, **options)
        checked.add(key)


def _draft(
    settings: settings_lib.GridSettings,
    subject: subjects.Subject,
    cell: cells.Cell,
    problem: method.Problem,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
) -> records.Record:
    """The record of a cell without its outcome; its settings are those that the outcome depends on."""
    split = problem.split
    return records.Record(
        task=problem.task.name,
        model=subject.model.name,
        method=cell.method,
        seed=split.seed,
        shots=split.shots,
        demo_shots=split.demo_shots,
        accuracy=float("nan"),
        predicted=(),
        true=tuple(example.label for example in problem.evaluation),
        settings={name: getattr(settings, name) for name in _DECISIVE}
        | {"data": subject.rows.digest[:16], "runs": cell.declared.name, "options": dict(options)},
        fingerprint=subject.model.fingerprint,
        class_counts={label: counts._asdict() for label, counts in split.class_counts.items()},
        note=cells.REUSED if cell.reuses_icl else "",
        experiment=settings.experiment,
        cell=dict(cell.axes),
        environment=environment,
    )
