"""The pack shapes of a job."""

import dataclasses
from collections.abc import Sequence

from knnprompt_jax.common import parallel, rounding
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout, packing


class PackShapes:
    """The pack shapes of a job: few, because each takes a compilation.

    Groups with a prefix and groups without have shapes of their own; with `repeated`, wide rows too. The first chunk
    determines a shape. Only a chunk that does not fit, or is twice as large, replaces it.
    """

    def __init__(self, model: lm.LanguageModel, repeated: bool):
        self._model = model
        self._repeated = repeated
        self._added: list[tuple[Sequence[layout.PromptGroup], bool]] = []
        self._shapes: dict[tuple[bool, bool], packing.PackShape] = {}
        self._num_tokens: dict[tuple[bool, bool], int] = {}  # Tokens of the chunk that each shape was chosen for.

    def add(self, groups: Sequence[layout.PromptGroup], is_whole: bool) -> None:
        """Choose shapes for a chunk, `is_whole` if it has all prompts of its set, before the next call of `of`.

        Shapes do not depend on what the cache holds, so that a resumed job has the same.
        """
        self._added.append((groups, is_whole))

    def of(self, group: layout.PromptGroup) -> packing.PackShape:
        """Return the shape of a group of an added chunk, or of a part of it."""
        if self._model.deterministic:
            # Half the tokens per step, so that a few texts do not cost as much as many.
            return packing.shape_alone(group, self._model.default_step_tokens // 2)
        for groups, is_whole in self._added:
            for kind in {self._kind(each) for each in groups}:
                self._choose(kind, [each for each in groups if self._kind(each) == kind], is_whole)
        self._added.clear()
        return self._shapes[self._kind(group)]

    def _kind(self, group: layout.PromptGroup) -> tuple[bool, bool]:
        return bool(len(group.prefix_P)), self._repeated and group.longest > packing.ROW_WIDTH

    def _choose(self, kind: tuple[bool, bool], groups: Sequence[layout.PromptGroup], is_whole: bool) -> None:
        old = self._shapes.get(kind)
        num_tokens = sum(len(group.suffixes.tokens_T) for group in groups)
        longest = max(group.longest for group in groups)
        prefix = max(len(group.prefix_P) for group in groups)
        if old and longest <= old.width and prefix <= old.prefix:
            is_full = (old.rows + 1) * old.width > self._model.step_tokens
            if is_full or num_tokens <= 2 * self._num_tokens[kind]:
                return
        choose = self._choose_reusable if self._repeated else packing.choose_shape
        shape = choose(groups, self._model.step_tokens, self._model.mesh.shape[parallel.DATA])
        if not is_whole:  # Other chunks may have more outputs in a step.
            shape = dataclasses.replace(shape, outputs=rounding.round_up(shape.outputs * 9 // 8, 8))
        self._shapes[kind] = shape
        self._num_tokens[kind] = num_tokens

    def _choose_reusable(
        self, groups: Sequence[layout.PromptGroup], step_tokens: int, shards: int
    ) -> packing.PackShape:
        """Choose from few packings, so that calls of about the same size share their compiled programs."""
        shape = packing.choose_shape(groups, step_tokens, shards)
        # The width of the longest suffix that a context holds after the prefix.
        room = rounding.round_up(self._model.context - min(len(group.prefix_P) for group in groups), 64)
        width = shape.width if shape.width == packing.ROW_WIDTH else min(rounding.next_power_of_two(shape.width), room)
        rows = min(rounding.next_power_of_two(shape.rows), max(1, step_tokens // width))
        outputs = max(packing.max_outputs(group, packing.fill_rows(group, width), rows) for group in groups)
        outputs = rounding.round_up(outputs, max(32, rounding.next_power_of_two(outputs) // 8))
        return dataclasses.replace(shape, width=width, rows=rows, outputs=outputs)
