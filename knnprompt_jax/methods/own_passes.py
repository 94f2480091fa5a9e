"""Passes beside the shared pass: they read the queries again, after other demonstrations than the split's."""

from collections.abc import Iterable, Iterator, Sequence

from knnprompt_jax import lm, parallel, progress
from knnprompt_jax.methods import method
from knnprompt_jax.prompts import packing
from knnprompt_jax.tasks.task import Example


class QueryPasses:
    """The problem's queries after each of several sets of demonstrations: `prompts` in all, of which `truncated` are cut.

    All sets share their compilations.
    """

    def __init__(self, context: method.Context, demonstration_sets: Iterable[Sequence[Example]]):
        problem, self._model = context.problem, context.model
        self._laid_out = [problem.lay_out(shown, self._model.context) for shown in demonstration_sets]
        self.prompts = sum(prompts.num_prompts for prompts in self._laid_out)
        self.truncated = sum(prompts.num_truncated for prompts in self._laid_out)

    def states(self, title: str) -> Iterator[lm.States]:
        """The states of the queries after each set, whole on every device; `title` stands beside the progress bar."""
        model = self._model
        groups = (group for prompts in self._laid_out for group in prompts.groups)
        shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
        with progress.bar(self.prompts, title) as report:
            for prompts in self._laid_out:
                yield model.states(prompts, lambda group: shapes[bool(len(group.prefix_P))], report)[:]


def cost(problem: method.Problem, reader: method.Reader, num_sets: int) -> method.Cost:
    """Of reading all queries after each of so many sets that are as long as the split's demonstrations."""
    prefix = reader.demonstration_tokens(problem.task, problem.split.demonstrations)
    suffixes = reader.query_tokens(problem.task, problem.evaluation)
    return method.Cost(num_sets * len(problem.evaluation), num_sets * (prefix + suffixes))
