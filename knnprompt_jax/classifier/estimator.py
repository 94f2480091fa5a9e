"""Two classifiers with scikit-learn's interface.

`KNNPrompting` is the published method (Xu et al., ICLR 2023). `AutoClassifier` is a pool of experts.
"""

import dataclasses
import inspect
import pathlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from absl import logging
from jax.sharding import Mesh
from sklearn import base
from sklearn.utils import validation

from knnprompt_jax import classifier as classifier_lib
from knnprompt_jax.classifier import arguments, classifier_file, explanation, fit_classifier
from knnprompt_jax.classifier.arguments import AutoOptions, PublishedOptions
from knnprompt_jax.classifier.confidence import novelty, selective
from knnprompt_jax.classifier.experts.pool import Choice
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.common import errors, files
from knnprompt_jax.common import options as options_lib
from knnprompt_jax.datastore import search
from knnprompt_jax.inference import lm as lm_lib
from knnprompt_jax.inference import states as states_lib
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

# A search over k, or repeated predictions of the same texts, read each text once.
_CACHE = states_lib.MemoryCache(256 * 2**20, disk_bytes=2 * 2**30)


class Classifier(base.ClassifierMixin, base.BaseEstimator):
    """A classifier whose anchors are training texts, represented by a frozen language model's states.

    Some rows of each class become demonstrations, which begin every prompt. `options_kind` declares the options.

    Attributes:
        fitted_: everything that `fit` makes, as one immutable object.
    """

    options_kind: type[Any]
    fitted_: Fitted

    def __init_subclass__(cls) -> None:
        """Give `help` and editors the names, defaults and descriptions of all options."""
        super().__init_subclass__()
        if "options_kind" not in vars(cls):
            return
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{options_lib.described(cls.options_kind)}"
        kinds = inspect.Parameter
        given = [kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=None) for name in ("model", "task")]
        fields = dataclasses.fields(cls.options_kind)
        given += [kinds(field.name, kinds.KEYWORD_ONLY, default=field.default) for field in fields]
        cls.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]

    def __init__(self, model: Any = None, task: Task | None = None, **options: Any):
        """Create an unfitted classifier; `options` are those of the class. Without a task, `fit` infers it."""
        self.model = model
        self.task = task
        defaults = {field.name: field.default for field in dataclasses.fields(self.options_kind)}
        if unknown := options.keys() - defaults:
            raise TypeError(f"{type(self).__name__} has no option {min(unknown)!r}")
        for name, value in (defaults | options).items():
            setattr(self, name, value)

    @classmethod
    def _get_param_names(cls) -> list[str]:  # scikit-learn finds no names in a constructor with `**options`.
        return sorted(["model", "task", *(field.name for field in dataclasses.fields(cls.options_kind))])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    @property
    def options_(self) -> Any:
        """The options, checked: raises UserError on an invalid one."""
        names = (field.name for field in dataclasses.fields(self.options_kind))
        return self.options_kind(**{name: getattr(self, name) for name in names})

    @property
    def classes_(self) -> np.ndarray:
        """The labels [C] as in y, sorted; the columns of `predict_proba`."""
        return self.fitted_.classes

    @property
    def task_(self) -> Task:
        """The task in use: the given or the inferred one."""
        return self.fitted_.task

    @property
    def demonstrations_(self) -> tuple[Example, ...]:
        """The examples that begin every prompt."""
        return self.fitted_.content.demonstrations

    @property
    def anchors_(self) -> dict[int, Example]:
        """The example of each anchor by its id, the number of its row in X."""
        return {example.row: example for example in self.fitted_.content.anchors}

    def fit(self, X: Any, y: Any) -> Self:
        """Draw the demonstrations and read the anchors.

        Args:
            X: texts, rows as mappings, or a table of pandas, polars or pyarrow whose columns are the task's fields.
            y: their labels, as the task writes them; whole numbers and booleans match the strings of the task.

        Raises:
            UserError: a row without its fields, an unknown label, one class, an invalid option, or under k anchors.
        """
        return self._fit(X, y)

    def _fit(self, X: Any, y: Any, unlabelled: Any = None) -> Self:
        arguments.check_model(self.model)
        X = list(X) if isinstance(X, Iterator) else X
        y = arguments.label_list(y)
        task = Task.infer(X, y) if self.task is None else self.task
        rows = arguments.labelled(task, X, y)
        with errors.prefixed("unlabelled"):
            texts = [] if unlabelled is None else arguments.queries(task, unlabelled)
        for warning in splits.label_warnings(rows):
            logging.warning("%s", warning)
        if found := splits.describe_defects(rows):
            logging.warning("%s", found)
        self.fitted_ = fit_classifier.fit(
            self.model,
            task,
            rows,
            self.options_,
            labels=arguments.labels_like(task, y),
            cache=_CACHE,
            repeated=True,
            unlabelled=texts,
        )
        return self

    def answer(self, X: Any) -> arguments.Predictions:
        """Return labels, probabilities and neighbours, from one search."""
        fitted = self._check_fitted()
        return fitted.answer(fitted.read(arguments.queries(fitted.task, X), _CACHE))

    def predict(
        self, X: Any, abstain: float = 0.0, max_error: float | None = None, reject_novel: float | None = None
    ) -> np.ndarray:
        """Return labels [Q], of y's type; None where the classifier abstains.

        Args:
            X: texts, as in `fit`.
            abstain: the smallest probability of a label, from 0 to 1.
            max_error: the largest share of wrong labels among those that are not None, such as 0.05. It is kept for at
                least 90 % of the draws of train rows, if X comes from the same mixture of texts as they do.
            reject_novel: the largest p-value, as in `novelty`, of texts that are left out as unlike the train rows;
                0.02 leaves out about 2 % of texts that do belong.

        Raises:
            UserError: `max_error` cannot be promised with so few rows, or no p-value is as small as `reject_novel`; the
                message says how many rows would do.
        """
        fitted = self._check_fitted()
        promise = classifier_lib.AnswerOptions(abstain=abstain, max_error=max_error, reject_novel=reject_novel)
        least = 0.0 if promise.max_error is None else selective.certify(*fitted.held_out(), promise.max_error)
        if promise.reject_novel is not None:
            novelty.check_threshold(promise.reject_novel, fitted.content.num_novelty_rows)
        readings = fitted.read(arguments.queries(fitted.task, X), _CACHE)
        predictions = fitted.answer(readings).abstaining(max(promise.abstain, least))
        if promise.reject_novel is not None:
            predictions = predictions.rejecting(fitted.novelty(readings), promise.reject_novel)
        return predictions.labels

    def novelty(self, X: Any) -> np.ndarray:
        """Return a p-value [Q] for each text: the share of anchors that are at least as unlike the other anchors.

        A small p-value means that the text is unlike the anchors. Texts that do belong have p-values from 0 to 1 alike:
        about 2 % of them have one of at most 0.02.
        """
        fitted = self._check_fitted()
        return fitted.novelty(fitted.read(arguments.queries(fitted.task, X), _CACHE))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes [Q, C], in the order of `classes_`."""
        return self.answer(X).probabilities

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Return distances [Q, k] and ids [Q, k] of the nearest anchors, nearest first.

        Without X, return the nearest other anchors of each anchor.
        """
        fitted = self._check_fitted()
        k = fitted.content.k if n_neighbors is None else search.VoteOptions(k=n_neighbors).k
        if X is None:
            near = fitted.search_among_anchors(k)
        else:
            near = fitted.search(fitted.read(arguments.queries(fitted.task, X), _CACHE), k)
        ids_Qk = fitted.store.ids_N[np.asarray(near.indices_Qk)]
        return (np.asarray(near.distances_Qk), ids_Qk) if return_distance else ids_Qk

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each anchor's class [N] and class probabilities [N, C] by other anchors, in the task's order.

        Raises:
            UserError: there is a single anchor.
        """
        return self._check_fitted().left_out()

    def explain(self, text: Any, num_tokens: int = 0) -> explanation.Explanation:
        """Return the words' contributions to a label, and neighbours with `num_tokens` terms of a KL divergence."""
        return explanation.explain(self._check_fitted(), text, num_tokens, _CACHE)

    def save(self, path: str | pathlib.Path, overwrite: bool = False) -> None:
        """Write everything but the model's weights into a file.

        Raises:
            UserError: the file exists, and `overwrite` is False or it is not a classifier; or the system refuses.
        """
        fitted = self._check_fitted()
        path = pathlib.Path(files.expand_home(path))
        classifier_file.check_replaceable(path, overwrite)
        classifier_file.save(fitted, path)

    def _check_fitted(self) -> Fitted:
        """Return `fitted_` with the present values of the options that may change after `fit`."""
        validation.check_is_fitted(self, "fitted_")
        self.fitted_ = self.fitted_.with_options(self.options_)
        return self.fitted_


class KNNPrompting(Classifier):
    """kNN Prompting: the majority label of the k anchors whose next-token distributions are nearest.

    Distance, k, weights and tie-breaking may be changed after `fit`. `predict_proba` returns shares of the vote.
    """

    options_kind = PublishedOptions


class AutoClassifier(Classifier):
    """A pool of experts on each text, weighed on the rows.

    Every row is read without demonstrations, and after other rows as demonstrations. Probabilities are calibrated.
    After `fit`, only `class_prior` may be changed.
    """

    options_kind = AutoOptions

    def fit(self, X: Any, y: Any, unlabelled: Any = None) -> Self:
        """Read the rows, and weigh the experts.

        Args:
            X: as in `KNNPrompting.fit`, like y and the errors.
            y: the labels.
            unlabelled: texts without labels, drawn at random like those to come, with classes as common as among the
                rows. The score of each class is then relative to its mean over these texts, too. Otherwise,
                `class_prior="estimate"` takes the shares of classes among them.
        """
        classifier_lib.check_unlabelled(unlabelled is not None, self.options_.class_prior)
        return self._fit(X, y, unlabelled)

    @property
    def choice_(self) -> Choice:
        """The experts with their accuracy and weights, and the estimate for new texts."""
        choice = self._check_fitted().content.choice
        assert choice is not None
        return choice


def load(
    path: str | pathlib.Path, model: lm_lib.LanguageModel | None = None, mesh: Mesh | None = None
) -> KNNPrompting | AutoClassifier:
    """Load a saved classifier, of the class that it was saved with.

    Args:
        path: a file that `save` or `knnprompt fit` wrote.
        model: the model of the anchors; by default loaded by the name or folder that it had, over `mesh`.

    Raises:
        UserError: no classifier there, a damaged file, or a model that cannot be loaded or is not that of the anchors.
    """
    if model is not None:
        arguments.check_model(model)
    saved = classifier_file.read(pathlib.Path(files.expand_home(path)))
    fitted = saved.restore(model or saved.load_model(mesh))
    kind = KNNPrompting if fitted.content.is_published else AutoClassifier
    classifier = kind(fitted.model, fitted.task, **vars(fitted.content.options))
    classifier.fitted_ = fitted
    return classifier
