"""Noisy channel: the class whose label explains the text best; and its direct counterparts.

Min, Lewis, Hajishirzi, Zettlemoyer: "Noisy Channel Language Model Prompting for Few-Shot Text Classification",
ACL 2022, https://github.com/shmsw25/Channel-LM-Prompting.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import special

from knnprompt_jax import errors, lm, progress
from knnprompt_jax.methods import channel_templates, channel_texts, method
from knnprompt_jax.prompts import continuations as likelihood

VARIANTS = ("channel", "direct", "direct++")
DEMONSTRATIONS = ("concatenated", "ensembled")
SHOWN = ("demonstrations", "all")
CONTENT_FREE = channel_texts.Row("N/A")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How texts are scored.

    Attributes:
      variant: "channel" scores the text after the label; "direct" the label after the text; "direct++" subtracts from
        that the label's score after "N/A".
      demonstrations: "concatenated" before the query, or "ensembled": each alone before it, log-scores summed.
      shown: "demonstrations" of the split, or "all" its train rows, as in the paper's few-shot table.
      template: 1 to 4; 0 scores all four and keeps the one that is best on the evaluation rows, as the paper reports.
      text_tokens: of a text to classify; 0: 112, and 240 for CR, SUBJ, AGNews and DBPedia. Demonstrations have 16 more.
      context_tokens: of all that is read and scored; 0: 1,024, and 16 more than `text_tokens` where ensembled. What is
        too long loses tokens on the left.

    Raises:
      UserError: a value outside its choices.
    """

    variant: str = "channel"
    demonstrations: str = "concatenated"
    shown: str = "demonstrations"
    template: int = 0
    text_tokens: int = 0
    context_tokens: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("variant", VARIANTS), ("demonstrations", DEMONSTRATIONS), ("shown", SHOWN)):
            if getattr(self, name) not in choices:
                raise errors.UserError(f"{name}={getattr(self, name)!r}: choose from {', '.join(choices)}")
        if self.template not in range(5):
            raise errors.UserError(f"template={self.template}: choose from 1, 2, 3, 4, or 0 for the best of them")
        for name in ("text_tokens", "context_tokens"):
            if getattr(self, name) < 0:
                raise errors.UserError(f"{name}={getattr(self, name)}: choose 1 or more, or 0 for the published limit")

    @property
    def templates(self) -> list[int]:
        return [self.template - 1] if self.template else [0, 1, 2, 3]

    def limits(self, verbalization: channel_templates.Verbalization, context: int) -> tuple[int, int]:
        """Most tokens of a text to classify, and of a whole context for a model that reads so many."""
        text = self.text_tokens or verbalization.text_tokens
        ensembled = self.demonstrations == "ensembled"
        published = text + channel_templates.MARGIN if ensembled else channel_templates.CONTEXT
        return text, min(context, self.context_tokens or published)


def scores(context: method.Context, settings: Settings) -> tuple[np.ndarray, likelihood.Continuations]:
    """Scores [U, Q, C] by U templates, and the texts that were read.

    A score is the mean log-probability of the tokens scored, an end-of-text token among them, summed over the contexts.
    """
    problem, model = context.problem, context.model
    verbalization = channel_templates.get(problem.task)
    text_tokens, limit = settings.limits(verbalization, model.context)
    writer = channel_texts.Writer(problem.tokenize, *_ends(model), text_tokens)
    split = problem.split
    shown = [*split.demonstrations, *(split.anchors if settings.shown == "all" else ())]
    rows = [channel_texts.Row(problem.task.retrieval_text(one), problem.task.class_index(one.label)) for one in shown]
    contexts = [[row] for row in rows] if settings.demonstrations == "ensembled" and rows else [rows]
    queries = [channel_texts.Row(problem.task.retrieval_text(one)) for one in problem.evaluation]
    if settings.variant == "direct++":
        queries.append(CONTENT_FREE)
    write = writer.channel if settings.variant == "channel" else writer.direct
    continuations = likelihood.lay_out(
        (write(verbalization.labels(template), rows, queries) for template in settings.templates for rows in contexts),
        limit,
    )
    with progress.bar(continuations.num_texts, f"seed {context.seed}, noisy channel, {settings.variant}") as report:
        means = np.array([log_p.mean(dtype=np.float64) for log_p in model.log_likelihoods(continuations, report)])
    means = means.reshape(len(settings.templates), len(contexts), len(queries), context.num_classes)
    if settings.variant == "direct++":
        means = means[:, :, :-1] - means[:, :, -1:]
    return means.sum(1), continuations


def _ends(model: lm.LanguageModel) -> tuple[int, int]:
    """The tokens that begin and end a text; a tokenizer that has only one of them uses it for both."""
    start, end = model.tokenizer.bos_token_id, model.tokenizer.eos_token_id
    if start is None and end is None:
        raise errors.UserError(
            f"{model.name}: the tokenizer has no token that begins or ends a text, which is scored too"
        )
    return (end if start is None else start), (start if end is None else end)


def run(context: method.Context, **options: Any) -> method.Prediction:
    """Predicts with one template, or with the best of four; probabilities are the softmax of its scores.

    The options are those of `Settings`.
    """
    settings = Settings(**options)
    scores_UQC, continuations = scores(context, settings)
    accuracy_U = (scores_UQC.argmax(-1) == context.classes(context.problem.evaluation)).mean(-1)
    best_QC = scores_UQC[accuracy_U.argmax()]
    return method.Prediction(
        best_QC.argmax(-1),
        special.softmax(best_QC, axis=-1),
        note="; ".join(_notes(channel_templates.get(context.problem.task), len(accuracy_U), continuations)),
        candidates=tuple(accuracy_U.tolist()) if len(accuracy_U) > 1 else (),
        truncated=continuations.num_truncated,
    )


def _notes(
    verbalization: channel_templates.Verbalization, templates: int, continuations: likelihood.Continuations
) -> Iterator[str]:
    if templates > 1:
        yield f"best of {templates} templates, CHOSEN ON THE EVALUATION ROWS"
    if not verbalization.published:
        yield "templates not of Min et al., who have none for this task"
    if continuations.num_truncated:
        yield f"{continuations.num_truncated} of {continuations.num_texts} texts truncated"


def prepare(problem: method.Problem, **options: Any) -> None:
    """Raises UserError on a value outside its choices."""
    del problem
    Settings(**options)


def _method(name: str, title: str, by_name: str = "", **overrides: Any) -> method.Method:
    options = dataclasses.asdict(Settings(**overrides))
    return method.Method(name, title, run, options=options, prepare=prepare, by_name=by_name)


_ensembled = functools.partial(
    _method, by_name="it reads every row again after each demonstration alone: name the method to run it"
)
METHODS = (
    _method("noisy_channel", "Noisy channel"),
    _method("noisy_channel_direct", "Noisy channel's direct", variant="direct"),
    _method("noisy_channel_direct_plus", "Noisy channel's direct++", variant="direct++"),
    _ensembled("noisy_channel_ensemble", "Noisy channel, ensembled", demonstrations="ensembled"),
)
