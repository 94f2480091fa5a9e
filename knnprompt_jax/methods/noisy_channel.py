"""Noisy channel: the class whose label explains the text best, and its direct counterparts.

Min, Lewis, Hajishirzi, Zettlemoyer: "Noisy Channel Language Model Prompting for Few-Shot Text Classification", ACL 2022,
https://github.com/shmsw25/Channel-LM-Prompting.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from scipy import special

from knnprompt_jax import errors, lm, options
from knnprompt_jax.methods import channel_texts, method
from knnprompt_jax.prompts import continuations
from knnprompt_jax.tasks.task import Example

DEMONSTRATIONS = ("concatenated", "ensembled")
CONTENT_FREE = "N/A"


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of the scores. Texts that exceed the context lose tokens on the left."""

    variant: str = options.option(
        "channel",
        "channel scores the text after the label, direct the label after the text; direct++ subtracts its score after N/A.",
        choices=("channel", "direct", "direct++"),
    )
    demonstrations: str = options.option(
        "concatenated",
        "All demonstrations before the text, or each alone before it with log-scores summed.",
        choices=DEMONSTRATIONS,
    )
    shown: str = options.option(
        "demonstrations",
        "The split's demonstrations, or all its train rows, as in the paper's few-shot table.",
        choices=("demonstrations", "all"),
    )
    template: int = options.option(
        0, "1 to 4; 0 scores all four and keeps the best on the evaluation rows.", least=0, most=4
    )
    text_tokens: int = options.option(
        0,
        "Maximum tokens of a query; 0: 112, and 240 for CR, SUBJ, AGNews and DBPedia. Demonstrations have 16 more.",
        least=0,
    )
    context_tokens: int = options.option(
        0, "Maximum tokens read and scored; 0: 1,024, or 16 more than text_tokens if ensembled.", least=0
    )

    @property
    def templates(self) -> list[int]:
        return [self.template - 1] if self.template else [0, 1, 2, 3]

    def limits(self, verbalization: channel_texts.Verbalization, context: int) -> tuple[int, int]:
        """Return the maximum tokens of a query and of a whole context, for a model that reads `context` tokens."""
        text = self.text_tokens or verbalization.text_tokens
        published = text + channel_texts.MARGIN if self.demonstrations == "ensembled" else channel_texts.CONTEXT
        return text, min(context, self.context_tokens or published)

    def contexts(self, problem: method.Problem) -> list[list[Example]]:
        """Return the demonstrations of each context."""
        rows = problem.train_rows if self.shown == "all" else list(problem.split.demonstrations)
        return [[row] for row in rows] if self.demonstrations == "ensembled" and rows else [rows]


def scores(context: method.Context, settings: Settings) -> tuple[np.ndarray, continuations.Continuations]:
    """Return scores [U, Q, C] by U templates, and the texts that were read.

    A score is the mean log-probability of the scored tokens, including an end-of-text token, summed over the contexts.
    """
    problem = context.problem
    verbalization = channel_texts.verbalization(problem.task)
    text_tokens, limit = settings.limits(verbalization, context.model.context)
    writer = channel_texts.Writer(problem.tokenize, *boundary_tokens(context.model), text_tokens)
    contexts = [
        [(problem.task.retrieval_text(row), problem.task.class_index(row.label)) for row in rows]
        for rows in settings.contexts(problem)
    ]
    queries = [problem.task.retrieval_text(row) for row in problem.evaluation]
    if settings.variant == "direct++":
        queries.append(CONTENT_FREE)
    write = writer.channel if settings.variant == "channel" else writer.direct
    texts = continuations.lay_out(
        (write(verbalization.labels(template), rows, queries) for template in settings.templates for rows in contexts),
        limit,
    )
    log_p = context.score(texts, f"noisy channel, {settings.variant}")
    means = np.array([tokens.mean(dtype=np.float64) for tokens in log_p])
    means = means.reshape(len(settings.templates), len(contexts), len(queries), context.num_classes)
    if settings.variant == "direct++":
        means = means[:, :, :-1] - means[:, :, -1:]
    return means.sum(1), texts


def boundary_tokens(model: lm.LanguageModel) -> tuple[int, int]:
    """Return the tokens that begin and end a text; a tokenizer that has only one of them uses it for both."""
    start, end = model.tokenizer.bos_token_id, model.tokenizer.eos_token_id
    if start is None and end is None:
        raise errors.UserError(
            f"{model.name}: the tokenizer has no token that begins or ends a text; the noisy channel needs one"
        )
    return (end if start is None else start), (start if end is None else end)


def run(context: method.Context, settings: Settings) -> method.Prediction:
    """Predict with one template, or with the best of four; probabilities are the softmax of its scores."""
    scores_UQC, texts = scores(context, settings)
    accuracy_U = (scores_UQC.argmax(-1) == context.classes(context.problem.evaluation)).mean(-1)
    best_QC = scores_UQC[accuracy_U.argmax()]
    notes = []
    if len(accuracy_U) > 1:
        notes.append(f"best of {len(accuracy_U)} templates, CHOSEN ON THE EVALUATION ROWS for each seed")
    if not channel_texts.verbalization(context.problem.task).is_published:
        notes.append("templates are ours: Min et al. have none for this task")
    if texts.num_truncated:
        notes.append(f"{texts.num_truncated} of {texts.num_texts} texts truncated")
    return method.Prediction(
        best_QC.argmax(-1),
        special.softmax(best_QC, axis=-1),
        note="; ".join(notes),
        candidates=tuple(accuracy_U.tolist()) if len(accuracy_U) > 1 else (),
        prompts=texts.num_texts,
        truncated=texts.num_truncated,
    )


def best_template(accuracy_SU: Sequence[Sequence[float]]) -> int:
    """Return the template, from 0, with the best mean accuracy over S seeds: the paper's "best of four".

    Choosing a template for each seed would give a mean of maxima, which is higher.
    """
    return int(np.mean(accuracy_SU, axis=0).argmax())


def cost(problem: method.Problem, reader: method.Reader, settings: Settings) -> method.Cost:
    """Estimate the cost of each query with each label by each template, after each context."""
    contexts = settings.contexts(problem)
    times = len(settings.templates) * problem.task.num_classes
    prefixes = sum(min(reader.context, reader.demonstration_tokens(problem.task, rows)) for rows in contexts)
    suffixes = reader.query_tokens(problem.task, problem.evaluation)
    return method.Cost(times * len(contexts) * len(problem.evaluation), times * (prefixes + len(contexts) * suffixes))


_declare = functools.partial(method.Method, run=run, cost=cost, sees="demonstrations")
METHODS = (
    _declare("noisy_channel", "Noisy channel", settings=Settings, printed_as=("Noisy Channel", "NoisyChannel")),
    _declare(
        "noisy_channel_direct", "Noisy channel's direct", settings=method.with_defaults(Settings, variant="direct")
    ),
    _declare(
        "noisy_channel_direct_plus",
        "Noisy channel's direct++",
        settings=method.with_defaults(Settings, variant="direct++"),
    ),
    _declare(
        "noisy_channel_ensemble",
        "Noisy channel, ensembled",
        settings=method.with_defaults(Settings, demonstrations="ensembled"),
        by_name="it reads every row again after each demonstration alone: name the method to run it",
    ),
)
