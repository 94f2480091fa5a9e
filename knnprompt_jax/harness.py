"""A model for lm-evaluation-harness (the extra `harness`): its requests, scored by the packed pass.

python -m knnprompt_jax.harness --model knnprompt --model_args pretrained=Qwen/Qwen3-0.6B --tasks arc_easy --num_fewshot 5

Options are the harness's. Texts that begin alike are read together after what they share, a text that is asked for twice is read once,
and batches are made here: its `batch_size` and `device` are not used. Scores do not depend on the order of the requests.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from lm_eval import utils
from lm_eval.api import model as model_lib
from lm_eval.api import registry

from knnprompt_jax import errors, parallel, progress
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.prompts import continuations

Text = tuple[tuple[int, ...], tuple[int, ...]]
"""The tokens of a context, and of the continuation that is scored."""

_SHARED = 64  # So many more tokens in common are worth a prefix,
_LEAST = 32  # for so many texts: each prefix is read by itself, padded to the longest.


@registry.register_model("knnprompt")
class HarnessModel(model_lib.TemplateLM):
    """Any model of `LanguageModel.from_pretrained`, which scores and does not generate."""

    def __init__(
        self,
        pretrained: str = "smollm2",
        revision: str | None = None,
        dtype: str = "float32",
        mesh_model: int = 1,
        max_length: int | None = None,
        **_: Any,
    ):
        """Devices that the weights are split over are `mesh_model`; all others split the texts. `max_length` are tokens of context.

        Raises:
            UserError: as `LanguageModel.from_pretrained`, or a `max_length` that the model does not have.
        """
        super().__init__()
        mesh = parallel.make_mesh(0, int(mesh_model))
        self.lm = lm_lib.LanguageModel.from_pretrained(str(pretrained), dtype, revision, mesh=mesh)
        self.tokenizer, self.max_length = self.lm.tokenizer, int(max_length or self.lm.context)
        if not 1 <= self.max_length <= self.lm.context:
            raise errors.UserError(f"max_length={max_length}: {pretrained} reads 1 to {self.lm.context} tokens")

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """What comes before a text without context."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        return self.lm.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Tokens, with the special tokens that the tokenizer adds unless they are there already or are not wanted."""
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(self.tokenizer.decode(self.prefix_token_id))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """log p of whole texts, in nats, each token after as many as fit before it."""
        windows, owners = [], []
        for number, (string,) in enumerate(request.args for request in requests):
            for window in utils.get_rolling_token_windows(
                self.tok_encode(string), self.prefix_token_id, self.max_length, 1
            ):
                windows.append((None, *utils.make_disjoint_window(window)))
                owners.append(number)
        scores = [score for score, _ in self._loglikelihood_tokens(windows, disable_tqdm)]
        totals = np.bincount(np.array(owners, int), scores, len(requests)).tolist()
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        raise errors.UserError("knnprompt scores texts and does not generate: choose tasks of log-likelihoods")

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """log p of each continuation after its context, in nats, and whether greedy decoding gives it."""
        asked = [(tuple(context), tuple(target)) for _, context, target in requests]
        texts = sorted(set(asked))
        order: list[int] = []
        # The last token is asked for and not read.
        laid = continuations.lay_out(families(texts, order), self.max_length + 1)
        with progress.bar(None if disable_tqdm else len(texts), unit="text") as report:
            scores = self.lm.score(laid, report)
        answers = {
            texts[place]: (float(log_p.sum(dtype=np.float64)), bool(is_greatest.all()))
            for place, log_p, is_greatest in zip(order, scores.log_p, scores.is_greatest, strict=True)
        }
        for request, text in zip(requests, asked, strict=True):
            if request[0] is not None:
                self.cache_hook.add_partial("loglikelihood", request[0], answers[text])
        return [answers[text] for text in asked]


def families(texts: Sequence[Text], order: list[int], first: int = 0) -> Iterator[continuations.Family]:
    """Sorted texts, by what their contexts begin with; appends to `order` the place of each, counted from `first`."""
    if not texts:
        return
    common, rest = _common([context for context, _ in texts]), []
    places = enumerate(texts, first)
    for start, group in itertools.groupby(places, lambda each: each[1][0][common : common + _SHARED]):
        members = list(group)
        if len(start) == _SHARED and len(members) >= _LEAST:
            yield from families([text for _, text in members], order, members[0][0])
        else:
            rest += members
    if rest:
        order += [place for place, _ in rest]
        contexts = [context for _, (context, _) in rest]
        common = _common(contexts)
        yield continuations.Family(
            np.array(contexts[0][:common], np.int32),
            [np.array(context[common:], np.int32) for context in contexts],
            [np.array(target, np.int32) for _, (_, target) in rest],
        )


def _common(contexts: Sequence[tuple[int, ...]]) -> int:
    """With how many tokens sorted contexts begin alike."""
    return len(os.path.commonprefix([contexts[0], contexts[-1]]))


def main() -> None:
    """The harness's command line, whose model is `knnprompt`; another `--model` is one line and exit status 2."""
    from lm_eval import __main__ as harness

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--model", "-M", default="")
    parser.add_argument("--config", "-C", default="")
    given, _ = parser.parse_known_args()
    try:
        if given.model not in ("", "knnprompt"):
            raise errors.UserError(f"--model={given.model}: this command scores with knnprompt; lm_eval has others")
        if not (given.model or given.config) and any(each.startswith(("--tasks", "-t")) for each in sys.argv):
            sys.argv += ["--model", "knnprompt"]
        harness.cli_evaluate()
    except errors.UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
