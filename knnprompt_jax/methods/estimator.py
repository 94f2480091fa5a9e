"""Any method by name in scikit-learn's words, on examples; `KNNPrompting` of the package's top is the one to save and to grow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import method, registry, shared_pass
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example, Task


class Estimator:
    """A method of the registry with a model and a task; classes are indices 0 … C − 1, in the order of the task's labels."""

    def __init__(
        self,
        model: lm.LanguageModel,
        task: Task,
        name: str,
        *,
        label_token: str = "last",
        truncation: str = "left",
        **options: Any,
    ):
        """`options` are the method's.

        Raises:
            UserError: unknown method or option.
        """
        registry.with_options(registry.get(name), options)
        self.model, self.task, self.name, self.options = model, task, name, options
        self.label_token, self.truncation = label_token, truncation
        self.classes_ = np.arange(task.num_classes)

    def fit(self, split: FewShotSplit) -> "Estimator":
        """Takes the demonstrations and anchors; they are read together with the examples to classify."""
        self.split = split
        self._last: tuple[list[Example], shared_pass.Result] | None = None
        return self

    def predict(self, examples: Sequence[Example]) -> np.ndarray:
        """Classes [Q]. A method that keeps the best of several prompts chooses it by the examples' labels."""
        return np.asarray(self._result(examples).classes_Q)

    def predict_proba(self, examples: Sequence[Example]) -> np.ndarray:
        """Class probabilities [Q, C].

        Raises:
            UserError: the method has none.
        """
        probabilities_QC = self._result(examples).probabilities_QC
        if probabilities_QC is None:
            raise errors.UserError(f"method {self.name!r} gives classes without probabilities: use predict")
        return np.asarray(probabilities_QC)

    def score(self, examples: Sequence[Example]) -> float:
        """Accuracy by the examples' labels, between 0 and 1."""
        true_Q = [self.task.class_index(example.label) for example in examples]
        return float(np.mean(self.predict(examples) == true_Q))

    def _result(self, examples: Sequence[Example]) -> shared_pass.Result:
        """The last result serves as long as the examples stay the same."""
        if self._last is None or self._last[0] != list(examples):
            problem = method.Problem(
                self.task, self.split, examples, self.model.tokenize, self.label_token, self.truncation
            )
            plan = shared_pass.plan(problem, [self.name], self.model.context, {self.name: self.options})
            self._last = list(examples), shared_pass.run(self.model, plan)[self.name]
        return self._last[1]
