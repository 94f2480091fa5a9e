"""The interface of a classifier to scikit-learn: its parameters, tags and clones.

Commands do not import this module: scikit-learn, with SciPy and pandas, takes seconds to import.
"""

import copy
import dataclasses
import inspect
from typing import Any, Self

from sklearn import base

from knnprompt_jax import lm
from knnprompt_jax import options as options_lib
from knnprompt_jax.tasks.task import Task


class ScikitInterface(base.ClassifierMixin, base.BaseEstimator):
    """A classifier that is unfitted after construction; `options_kind` declares its options."""

    options_kind: type[Any]

    def __init_subclass__(cls) -> None:
        """Give `help` and editors the names, defaults and descriptions of all options."""
        super().__init_subclass__()
        if "options_kind" not in vars(cls):
            return
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{options_lib.described(cls.options_kind)}"
        kinds = inspect.Parameter
        fields = dataclasses.fields(cls.options_kind)
        given = [kinds("model", kinds.POSITIONAL_OR_KEYWORD), kinds("task", kinds.POSITIONAL_OR_KEYWORD, default=None)]
        options = [kinds(field.name, kinds.KEYWORD_ONLY, default=field.default) for field in fields]
        cls.__signature__ = inspect.Signature([*given, *options])  # type: ignore[attr-defined]

    def __init__(self, model: lm.LanguageModel, task: Task | None = None, **options: Any):
        """Create an unfitted classifier; `options` are those of the class. Without a task, `fit` infers it."""
        self.model = model
        self.task = task
        for name, value in vars(self.options_kind(**options)).items():
            setattr(self, name, value)

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of the options, without the model and the task."""
        return [field.name for field in dataclasses.fields(cls.options_kind)]

    @classmethod
    def _get_param_names(cls) -> list[str]:  # scikit-learn finds no names in a constructor with `**options`.
        return sorted(["model", "task", *cls.option_names()])

    @property
    def options_(self) -> Any:
        """The options, checked: raises UserError on an invalid one."""
        return self.options_kind(**{name: getattr(self, name) for name in self.option_names()})

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the model, with the metadata that its methods request."""
        clone = type(self)(**self.get_params(deep=False))
        if hasattr(self, "_metadata_request"):  # scikit-learn's own clones copy it, too.
            clone._metadata_request = copy.deepcopy(self._metadata_request)
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs_tags = dataclasses.replace(tags.input_tags, one_d_array=True, two_d_array=False, string=True)
        return dataclasses.replace(tags, input_tags=inputs_tags)

    def __repr__(self) -> str:
        parameters = self.get_params(deep=False)
        parameters |= {name: getattr(parameters[name], "name", None) for name in ("model", "task")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"
