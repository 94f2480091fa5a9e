"""What scikit-learn asks of a classifier, without needing scikit-learn."""

import inspect
from typing import Any, Self

from knnprompt_jax import errors


class Classifier:
    """Options are the constructor's arguments, kept under their names; a fitted classifier has `store_`."""

    _estimator_type = "classifier"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options of the constructor by name; none of them has options of its own."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Sets options of the constructor; raises UserError, with the choices, on one that there is not."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise errors.UserError(f"unknown option {name!r}: choose from {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        options = {name: getattr(value, "name", value) for name, value in self.get_params().items()}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in options.items())})"

    def __sklearn_clone__(self) -> Self:
        """An unfitted copy, which shares the model: a copy of that would be as large."""
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "store_")

    def __sklearn_tags__(self) -> Any:
        from sklearn import utils  # Only scikit-learn asks for them.

        return utils.Tags(
            estimator_type="classifier",
            target_tags=utils.TargetTags(required=True),
            classifier_tags=utils.ClassifierTags(),
            input_tags=utils.InputTags(one_d_array=True, two_d_array=False, string=True),
        )
