"""Fit a pool: read the rows in each view, hold them out, weigh the experts, and fit these to all rows."""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import jax
import numpy as np

from knnprompt_jax.classifier.experts import expert as expert_lib
from knnprompt_jax.classifier.experts import near_copies, views, words
from knnprompt_jax.classifier.experts import pool as pool_lib
from knnprompt_jax.classifier.experts.expert import Readings, Resources
from knnprompt_jax.classifier.experts.pool import Choice, Member
from knnprompt_jax.classifier.experts.views import PromptReader
from knnprompt_jax.common import errors, progress
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.tasks.task import Example, Task

_MIN_PRIOR = 1e-300
_MIN_VIEW_SHARE = 0.1  # Of a pool: a view with a smaller share is not worth a second reading of every text.


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """Experts fitted to rows.

    Attributes:
        choice: the experts with their weights, and what is subtracted from the logits if no other shares are given.
        num_classes: the number of classes C, of which the P in `present_P` have rows.
        shares_P: the share of each of these classes among the rows.
        counts_J: the weight times the factor of each expert.
        resources: the inputs of the experts besides readings.
    """

    choice: Choice
    num_classes: int
    present_P: np.ndarray
    shares_P: np.ndarray
    counts_J: np.ndarray
    scorers: tuple[expert_lib.Scorer, ...]
    resources: Resources

    @classmethod
    def fit(
        cls,
        choice: Choice,
        readings: Readings,
        y_N: np.ndarray,
        num_classes: int,
        resources: Resources,
        terms: words.Terms | None = None,
    ) -> Self:
        """Fit the experts of a choice to rows of classes `y_N`.

        Args:
            terms: the expert on words, if it is fitted already.
        """
        present_P, y_N, counts_P = np.unique(y_N, return_inverse=True, return_counts=True)
        scorers: list[expert_lib.Scorer] = []
        present = resources.of_classes(present_P)
        for member in choice.used:
            expert = expert_lib.KINDS[member.expert](present, member.demo_shots, member.token_block)
            if terms and member.expert == expert_lib.Words.name:
                scorers.append(terms)
            else:
                scorers.append(expert.fit(readings, y_N, len(present_P), member.setting))
        counts_J = np.array([member.weight * member.factor for member in choice.used])
        return cls(choice, num_classes, present_P, counts_P / len(y_N), counts_J, tuple(scorers), resources)

    @property
    def terms(self) -> words.Terms | None:
        """The fitted expert on words; None if the pool has none."""
        return next((scorer for scorer in self.scorers if isinstance(scorer, words.Terms)), None)

    def probabilities(self, readings: Readings, prior_C: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of every class [Q, C]; a class without rows has 0.

        Args:
            prior_C: the share of each class among the texts; by default its share of the rows.
        """
        logits_QP = self.logits(readings)[:, self.present_P]
        shares_P = self.shares_P
        if prior_C is not None:
            shares_P = np.maximum(prior_C[self.present_P], _MIN_PRIOR)
        elif self.choice.offset:
            logits_QP = logits_QP - np.array(self.choice.offset)[self.present_P]
        return self._expand(pool_lib.probabilities(logits_QP, shares_P))

    def logits(self, readings: Readings) -> np.ndarray:
        """Return the weighted sum of the experts' scores [Q, C]; a class without rows has 0."""
        return self._expand(np.tensordot(self.counts_J, self._scores(readings), 1))

    def opinions(self, readings: Readings) -> np.ndarray:
        """Return the probability of every class by each expert alone [J, Q, C]; J is 0 if no expert was of use."""
        scores_JQP = self._scores(readings)
        p_JQC = np.zeros((len(scores_JQP), len(readings.texts), self.num_classes))
        for p_QC, scores_QP, member in zip(p_JQC, scores_JQP, self.choice.used, strict=True):
            p_QC[:] = self._expand(pool_lib.probabilities(member.factor * scores_QP, self.shares_P))
        return p_JQC

    def _scores(self, readings: Readings) -> np.ndarray:
        scores_JQP = np.zeros((len(self.scorers), len(readings.texts), len(self.present_P)))
        for scores_QP, scorer in zip(scores_JQP, self.scorers, strict=True):
            if readings.texts:
                scores_QP[:] = scorer(readings)
        return scores_JQP

    def _expand(self, values_QP: np.ndarray) -> np.ndarray:
        """Return the values of all classes [Q, C] from those of the classes with rows; others have 0."""
        values_QC = np.zeros((len(values_QP), self.num_classes))
        values_QC[:, self.present_P] = values_QP
        return values_QC


def joined_texts(task: Task, examples: Sequence[Example]) -> list[str]:
    """Return the fields of each example, joined by spaces, without the template."""
    return [" ".join(example.fields[field] for field in task.fields) for example in examples]


def resources_of(
    task: Task, model: lm.LanguageModel, label_token: str, encoder: str, store_options: StoreOptions
) -> Resources:
    """Return the resources of experts on prompts of a task; classes that share a token are no error."""
    tokens = layout.unchecked_label_tokens(task, model.tokenize, label_token)
    shared = layout.describe_shared_token(task, tokens, label_token)
    return Resources(model.head, model.mesh, () if shared else tokens, shared, encoder, store_options)


class FittedPool(NamedTuple):
    """A pool with what it was made from.

    Attributes:
        pool: the experts with their weights, fitted to all rows.
        demonstrations: the examples that new texts follow in each view in use, by their number per class.
        readings: the readings of all rows in these views.
        shares_C: the shares of classes among the texts without labels; empty if there are none.
        unlabelled: the readings of these texts.
    """

    pool: Pool
    demonstrations: Mapping[int, Sequence[Example]]
    readings: Readings
    shares_C: np.ndarray
    unlabelled: Readings | None

    def read(self, reader: PromptReader, examples: Sequence[Example], title: str) -> Readings:
        """Return the readings of examples in the views in use."""
        states = {
            shots: reader.read_after(self.demonstrations[shots], examples, tuple(read.activations), title)
            for shots, read in self.readings.states.items()
        }
        return Readings(joined_texts(reader.task, examples), states)


def fit(
    reader: PromptReader,
    rows: Sequence[Example],
    text_N: np.ndarray,
    shots: Sequence[int],
    names: Sequence[str],
    resources: Resources,
    seed: int,
    unlabelled: Sequence[Example] = (),
) -> FittedPool:
    """Weigh the named experts on a sample of at most `views.MAX_COMPARED_ROWS` rows, and fit them to all rows.

    Args:
        text_N: the number of the text of each row, as `near_copies.number_texts`.
        shots: the demonstrations per class of each view that experts may read, in descending order.
        unlabelled: texts without labels, to whose mean scores are relative, too.

    Raises:
        UserError: no expert can score the rows.
    """
    task = reader.task
    y_N = np.array([task.class_index(row.label) for row in rows])
    sample = views.sample(rows, seed)
    sampled_P, y_n = np.unique(y_N[sample], return_inverse=True)
    num_layers = reader.model.config.num_layers
    experts, obstacles = _able_experts(names, shots, num_layers, resources.of_classes(sampled_P))
    activations = expert_lib.activations_by_view(experts, num_layers)
    dealt = {number: views.deal(rows, text_N, number, seed) for number in activations}

    def read(chosen: Sequence[int], number: int) -> lm.States:
        return reader.read_view(rows, dealt[number], chosen, activations[number], f"demonstrations per class: {number}")

    resources = dataclasses.replace(resources, names_CD=_read_names(reader, rows, experts, dealt))
    experts = [dataclasses.replace(expert, resources=resources.of_classes(sampled_P)) for expert in experts]
    states = {number: read(sample, number) for number in activations}
    texts = joined_texts(task, rows)
    folds_n = views.deal_folds(y_n, text_N[sample])
    first_u = np.unique(text_N[sample] * len(sampled_P) + y_n, return_index=True)[1]
    sampled = Readings([texts[index] for index in sample], states)
    choice, logits_nP = _hold_out_and_weigh(experts, sampled, y_n, folds_n, obstacles)
    used = {number: states[number] for number in choice.views}
    readings = Readings(texts, _read_rest(used, np.isin(np.arange(len(rows)), sample), read))
    demonstrations = {number: [rows[index] for index in dealt[number].demonstrations] for number in choice.views}
    pool = Pool.fit(choice, readings, y_N, task.num_classes, resources)
    assessed = dataclasses.replace(pool, choice=pool_lib.assess(choice, logits_nP, y_n, first_u))
    found = FittedPool(assessed, demonstrations, readings, np.array([]), None)
    if not unlabelled:
        return found
    # The texts without labels shift the logits, and with them the estimate of what to expect.
    queries = found.read(reader, unlabelled, "texts without labels")
    offset_C = np.zeros(task.num_classes)
    offset_C[sampled_P] = pool_lib.offset(pool.logits(queries)[:, sampled_P], logits_nP, len(rows))
    choice = dataclasses.replace(choice, offset=tuple(offset_C.tolist()))
    choice = pool_lib.assess(choice, logits_nP - offset_C[sampled_P], y_n, first_u)
    return found._replace(
        pool=dataclasses.replace(pool, choice=choice),
        shares_C=pool_lib.estimate_shares(pool.probabilities(queries), np.bincount(y_N, minlength=task.num_classes)),
        unlabelled=queries,
    )


def _read_rest(
    states: Mapping[int, lm.States], is_sampled_N: np.ndarray, read: Callable[[Sequence[int], int], lm.States]
) -> Mapping[int, lm.States]:
    """Return the states of all rows from those of the sampled ones; `read` reads rows in a view."""
    if is_sampled_N.all():
        return states
    rest = np.flatnonzero(~is_sampled_N).tolist()

    def join(sampled: np.ndarray, others: np.ndarray) -> np.ndarray:
        joined = np.empty((len(is_sampled_N), *sampled.shape[1:]), sampled.dtype)
        joined[is_sampled_N] = sampled
        joined[~is_sampled_N] = others
        return joined

    return {shots: jax.tree.map(join, view, read(rest, shots)) for shots, view in states.items()}


def _read_names(
    reader: PromptReader,
    rows: Sequence[Example],
    experts: Sequence[expert_lib.Expert],
    dealt: Mapping[int, views.View],
) -> np.ndarray | None:
    """Return the mean over tokens of the name of each class [C, D], as class means read texts; None if they do not."""
    for expert in experts:
        if expert.name == expert_lib.ClassMeans.name and expert.token_block:
            assert expert.demo_shots is not None
            following = [rows[index] for index in dealt[expert.demo_shots].demonstrations]
            mean = expert.token_activation
            named = reader.read_after(following, reader.task.described(), (mean,), "names of classes")
            return np.asarray(named.activations[mean])
    return None


def predict_by_words(texts: Sequence[str], y_N: np.ndarray, queries: Sequence[str], num_classes: int) -> np.ndarray:
    """Return the probabilities [Q, C] of texts by the expert on words alone; N rows have classes `y_N`."""
    readings = Readings(texts, {})
    _, compact_N = np.unique(y_N, return_inverse=True)
    folds_N = views.deal_folds(compact_N, near_copies.number_texts([Example({"text": text}, "") for text in texts]))
    choice, _ = _hold_out_and_weigh([expert_lib.Words(Resources(), None)], readings, compact_N, folds_N)
    return Pool.fit(choice, readings, y_N, num_classes, Resources()).probabilities(Readings(queries, {}))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Keep NumPy and SciPy on one thread; on a busy machine, threads of such small products wait for each other."""
    import threadpoolctl

    importlib.import_module("scipy.linalg")  # It loads a library of its own.
    with threadpoolctl.threadpool_limits(1, "blas"):
        yield


def _able_experts(
    names: Sequence[str], shots: Sequence[int], num_layers: int, resources: Resources
) -> tuple[list[expert_lib.Expert], list[str]]:
    """Return the named experts that can score the classes, and why others cannot.

    Raises:
        UserError: no expert that reads prompts can.
    """
    kinds = [expert_lib.KINDS[name] for name in names]
    obstacles = []
    if expert_lib.LabelWords in kinds and resources.label_obstacle:
        kinds.remove(expert_lib.LabelWords)
        obstacles = [f"{expert_lib.LabelWords.name} left out: {resources.label_obstacle}"]
    if not any(kind.reads_prompts for kind in kinds):
        raise errors.UserError(f"no expert can score these rows: {'; '.join(obstacles)}")
    return [expert for kind in kinds for expert in kind.for_views(shots, num_layers, resources)], obstacles


@_one_thread()
def _hold_out_and_weigh(
    experts: Sequence[expert_lib.Expert],
    readings: Readings,
    y_N: np.ndarray,
    folds_N: np.ndarray,
    obstacles: Sequence[str] = (),
) -> tuple[Choice, np.ndarray]:
    """Hold out the rows for each expert, and weigh the experts, as `pool.weigh_experts`.

    A view with a small share of the pool is left out, because reading it costs as much as reading any other view.
    """
    members, scores_JNC = _hold_out(experts, readings, y_N, folds_N)
    choice, logits_NC = pool_lib.weigh_experts(members, scores_JNC, y_N, folds_N, obstacles)
    share_of = {shots: sum(m.share for m in choice.members if m.demo_shots == shots) for shots in choice.views}
    useless = {shots for shots, share in share_of.items() if share < min(_MIN_VIEW_SHARE, max(share_of.values()))}
    if useless:
        kept = [index for index, member in enumerate(members) if member.demo_shots not in useless]
        members = [members[index] for index in kept]
        choice, logits_NC = pool_lib.weigh_experts(members, scores_JNC[kept], y_N, folds_N, obstacles)
    return choice, logits_NC


def _hold_out(
    experts: Sequence[expert_lib.Expert], readings: Readings, y_N: np.ndarray, folds_N: np.ndarray
) -> tuple[list[Member], np.ndarray]:
    """Return the experts with their settings, and their scores [J, N, C] of the rows, each held out.

    The scores are all zero where every class has a single text, so that none can be held out.
    """
    num_classes = int(y_N.max()) + 1
    has_rest = len(set(zip(y_N, folds_N, strict=True))) > num_classes
    members = []
    scores_JNC = np.zeros((len(experts), len(y_N), num_classes))
    with progress.bar(len(experts), "comparing experts", "expert") as report:
        for expert, scores_NC in zip(experts, scores_JNC, strict=True):
            setting = expert.default_setting
            if has_rest:
                scores_NC[:], setting = expert.held_out(readings, y_N, folds_N, num_classes)
            members.append(Member(expert.name, expert.demo_shots, expert.token_block, setting))
            report(1, 0)
    return members, scores_JNC
