"""The pack shapes of a job."""

import dataclasses
from collections.abc import Sequence

from knnprompt_jax.common import parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.lm import execution
from knnprompt_jax.inference.prompts import layout, packing


class PackShapes:
    """The pack shapes of a job: few, because each takes a compilation.

    Groups with a prefix and groups without have shapes of their own; with `repeated`, wide rows too. Shapes do not
    depend on what the cache holds, so that a resumed job has the same.
    """

    def __init__(self, model: lm.LanguageModel, repeated: bool):
        self._model = model
        self._repeated = repeated
        self._chunk: Sequence[layout.PromptGroup] = ()
        self._shapes: dict[tuple[bool, bool], packing.PackShape] = {}
        self._num_tokens: dict[tuple[bool, bool], int] = {}  # Tokens of the chunk that each shape was chosen for.

    def start(self, groups: Sequence[layout.PromptGroup], is_whole: bool) -> None:
        """Start with a chunk, which has all prompts of its set if it `is_whole`.

        With `repeated`, each chunk chooses from few shapes, whatever came before it. Otherwise the first chunk
        determines a shape, and only a chunk that does not fit, or is twice as large, replaces it by a larger one.
        """
        self._chunk = groups
        if self._repeated:
            self._shapes.clear()
        elif not self._model.deterministic:
            for kind, members in self._by_kind().items():
                self._enlarge(kind, members, is_whole)

    def of(self, group: layout.PromptGroup) -> packing.PackShape:
        """Return the shape of a group of the chunk, or of a part of it."""
        model = self._model
        if model.deterministic:
            # Half the tokens per step, so that a few texts do not cost as much as many.
            return packing.shape_alone(group, execution.step_tokens(model.platform) // 2)
        kind = self._kind(group)
        if kind not in self._shapes:
            shards = model.mesh.shape[parallel.DATA]
            members = self._by_kind()[kind]
            self._shapes[kind] = packing.choose_common_shape(members, model.step_tokens, shards, model.context)
        return self._shapes[kind]

    def _by_kind(self) -> dict[tuple[bool, bool], list[layout.PromptGroup]]:
        kinds = {self._kind(group) for group in self._chunk}
        return {kind: [group for group in self._chunk if self._kind(group) == kind] for kind in kinds}

    def _kind(self, group: layout.PromptGroup) -> tuple[bool, bool]:
        return bool(len(group.prefix_P)), self._repeated and group.longest > packing.ROW_WIDTH

    def _enlarge(self, kind: tuple[bool, bool], groups: Sequence[layout.PromptGroup], is_whole: bool) -> None:
        model = self._model
        old = self._shapes.get(kind)
        num_tokens = sum(len(group.suffixes.tokens_T) for group in groups)
        longest = max(group.longest for group in groups)
        prefix = max(len(group.prefix_P) for group in groups)
        if old and longest <= old.width and prefix <= old.prefix:
            is_full = (old.rows + 1) * old.width > model.step_tokens
            if is_full or num_tokens <= 2 * self._num_tokens[kind]:
                return
        shape = packing.choose_shape(groups, model.step_tokens, model.mesh.shape[parallel.DATA], old)
        if not is_whole:  # Other chunks follow, which fill steps and may have more outputs in one.
            outputs = shape.outputs * 9 // 8
            if model.platform != "cpu":
                rows = max(1, model.step_tokens // shape.width)
                outputs = outputs * rows // shape.rows
                shape = dataclasses.replace(shape, rows=rows)
            shape = dataclasses.replace(shape, outputs=parallel.round_up(outputs, 8))
        self._shapes[kind] = shape
        self._num_tokens[kind] = num_tokens
