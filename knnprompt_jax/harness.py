"""A model for lm-evaluation-harness (the extra `harness`), whose requests are scored by the packed pass.

python -m knnprompt_jax.harness --model knnprompt --model_args pretrained=Qwen/Qwen3-0.6B --tasks arc_easy

`batch_size`, `max_batch_size` and `device` have no effect. Texts with a common beginning share one prefix, and
duplicate requests are read once. Scores do not depend on the order of the requests.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from lm_eval import utils
from lm_eval.api import model as model_lib
from lm_eval.api import registry

from knnprompt_jax.cli import app
from knnprompt_jax.common import errors, options, parallel, progress
from knnprompt_jax.inference import lm as lm_lib
from knnprompt_jax.inference.prompts import continuations, layout
from knnprompt_jax.models import DTYPES, hub

Text = tuple[tuple[int, ...], tuple[int, ...]]
"""The tokens of a context and of the continuation to score."""

_MIN_PREFIX = 64  # A prefix is read separately and padded to the longest, so it needs this many more common tokens
_MIN_TEXTS = 32  # and this many texts.


class Arguments(options.Options):
    """The arguments of the model besides its name."""

    dtype: str = options.option("float32", "Dtype of weights and activations.", choices=DTYPES)
    mesh_model: int = options.option(1, "Devices that share the weights; the others share the texts.", least=1)
    max_length: int | None = options.option(None, "Tokens of context; by default as many as the model reads.", least=1)


@registry.register_model("knnprompt")
class HarnessModel(model_lib.TemplateLM):
    """A model that `LanguageModel.from_pretrained` loads; it scores texts and does not generate."""

    def __init__(self, pretrained: str = hub.DEFAULT, **arguments: Any):
        """Load the model.

        Raises:
            UserError: as `LanguageModel.from_pretrained`; or arguments that `Arguments` does not allow.
        """
        super().__init__()
        for name in ("batch_size", "max_batch_size", "device"):  # The packed pass chooses its own.
            arguments.pop(name, None)
        given = options.from_config(Arguments, arguments)
        mesh = parallel.make_mesh(0, given.mesh_model)
        context = given.max_length or 0
        self.lm = lm_lib.LanguageModel.from_pretrained(pretrained, given.dtype, mesh=mesh, context=context)
        self.tokenizer = self.lm.tokenizer
        self.max_length = self.lm.context

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        return self.lm.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return the tokens of a text; by default with special tokens unless the text already starts with one.

        Special tokens in the text, such as those of a chat template, are not split, as in the harness's other models.
        """
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(self.tokenizer.decode(self.prefix_token_id))
        try:
            return self.tokenizer.encode(string, add_special_tokens=add_special_tokens, split_special_tokens=False)
        except TypeError:  # `tokenizers` takes only what UTF-8 can encode.
            raise errors.UserError(f"the task has a text with half a character: {string[:100]!r}") from None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        texts = []
        for context, continuation in (request.args for request in requests):
            tokens = self._encode_pair(context, continuation) if context else ([], self.tok_encode(continuation, False))
            texts.append(((context, continuation), *tokens))
        return self._loglikelihood_tokens(texts, disable_tqdm)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return log p of whole texts in nats, each token after as many tokens as fit before it."""
        windows = []
        owners = []
        for number, (string,) in enumerate(request.args for request in requests):
            tokens = self.tok_encode(string)
            for window in utils.get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, 1):
                windows.append((None, *utils.make_disjoint_window(window)))
                owners.append(number)
        scores = [score for score, _ in self._loglikelihood_tokens(windows, disable_tqdm)]
        totals = np.bincount(np.array(owners, int), scores, len(requests)).tolist()
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        raise errors.UserError("knnprompt scores texts and does not generate: choose tasks of log-likelihoods")

    def _text(self, context: Sequence[int], target: Sequence[int]) -> Text:
        """Return a text; if no token precedes the target, it gets the beginning of a text, as the harness gives it."""
        if context:
            return tuple(context), tuple(target)
        whole = (self.prefix_token_id, *target)[target[:1] == [self.prefix_token_id] :]
        return whole[:1], whole[1:]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Return log p of each continuation after its context in nats, and whether greedy decoding produces it.

        Raises:
            UserError: a continuation has no tokens; an empty sum would win against every other option.
        """
        wanted = [self._text(context, target) for _, context, target in requests]
        if () in (target for _, target in wanted):
            raise errors.UserError("an option has no tokens of its own after its context: change the task's options")
        texts = sorted(set(wanted))
        grouped = list(families(list(enumerate(texts))))
        order = [index for indices, _ in grouped for index in indices]
        # The last token is scored but not read.
        built = continuations.build([family for _, family in grouped], self.max_length + 1)
        layout.warn_truncated(built.num_truncated, len(texts), self.max_length)
        progress_bar = contextlib.nullcontext() if disable_tqdm else progress.bar(len(texts), unit="text")
        with progress_bar as report:
            scores = self.lm.score(built, report)
        answers = {
            texts[index]: (float(log_p.sum(dtype=np.float64)), bool(is_greatest.all()))
            for index, log_p, is_greatest in zip(order, scores.log_p, scores.is_greatest, strict=True)
        }
        for request, text in zip(requests, wanted, strict=True):
            if request[0] is not None:
                self.cache_hook.add_partial("loglikelihood", request[0], answers[text])
        return [answers[text] for text in wanted]


def families(texts: Sequence[tuple[int, Text]]) -> Iterator[tuple[list[int], continuations.Family]]:
    """Group sorted, numbered texts by common prefixes of their contexts; yield the numbers and the texts of a group."""
    if not texts:
        return
    common = _common([context for _, (context, _) in texts])
    rest = []
    for start, group in itertools.groupby(texts, lambda text: text[1][0][common : common + _MIN_PREFIX]):
        members = list(group)
        if len(start) == _MIN_PREFIX and len(members) >= _MIN_TEXTS:
            yield from families(members)
        else:
            rest += members
    if rest:
        contexts = [context for _, (context, _) in rest]
        common = _common(contexts)
        family = continuations.Family(
            np.array(contexts[0][:common], np.int32),
            [np.array(context[common:], np.int32) for context in contexts],
            [np.array(target, np.int32) for _, (_, target) in rest],
        )
        yield [index for index, _ in rest], family


def _common(contexts: Sequence[tuple[int, ...]]) -> int:
    """Return the number of tokens that all sorted contexts begin with."""
    return len(os.path.commonprefix([contexts[0], contexts[-1]]))


def main() -> None:
    """Run the harness's command line, which then has the model `knnprompt`; a user's mistake exits with status 2."""
    from lm_eval import __main__ as harness

    with app.one_line_errors():
        harness.cli_evaluate()


if __name__ == "__main__":
    main()
