"""Fixtures for methods: synthetic states, a problem over a tokenizer of single characters, and embeddings."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm
from knnprompt_jax.methods import all_methods, method
from knnprompt_jax.models import encoders
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task
from tests.methods import synthetic as synthetic_lib


@pytest.fixture(scope="session")
def synthetic() -> synthetic_lib.Synthetic:
    return synthetic_lib.make()


@pytest.fixture(scope="session")
def predict() -> Callable[..., method.Prediction]:
    """`predict("icl_ensemble", problem, model, combination="vote")` reads the needed prompts and runs the method."""

    def run(name: str, problem: method.Problem, model: lm.LanguageModel | None = None, /, **changes):
        declared = all_methods.get(name)
        options = synthetic_lib.options_of(name, **changes)
        if obstacle := declared.obstacle(problem, options):
            raise errors.UserError(obstacle)
        states = {}
        context = method.Inputs(problem, model, states)
        for prompt_set in declared.needs:
            examples = prompt_set.examples_of(problem)
            prompts = problem.build_prompts(problem.split.demonstrations, examples, model.context)
            [states[prompt_set]] = context.read_sets([prompts], "shared pass")
        return declared.predict(context, options)

    return run


@pytest.fixture
def problem() -> method.Problem:
    """Two fields and three classes; one token per character, and no special token."""
    task = Task("pairs", ("first", "second"), "{first}/{second}:", ("0", "1", "2"), ("a", "b", "c"))
    train = [
        Example({"first": f"One {number} Two", "second": f"word{number}"}, label, number)
        for number, label in enumerate("0101012010101")
    ]
    split = splits.draw(train, task, shots=4, demo_shots=1, seed=3)
    evaluation = [Example({"first": text, "second": "x"}, "0", row) for row, text in enumerate(["q", "longer", ""])]
    return method.Problem(task, split, evaluation, lambda texts: [[ord(letter) for letter in text] for text in texts])


@pytest.fixture
def embed(monkeypatch) -> Callable[[Sequence[str]], np.ndarray]:
    """Replace the encoder "my_encoder" by random vectors of length 1; return its embeddings [N, 7] of texts."""

    def embed_text(text: str) -> np.ndarray:
        row_D = np.random.default_rng([ord(letter) for letter in text]).normal(size=7)
        return row_D / np.linalg.norm(row_D)

    def embed_with(name: str, texts: Sequence[str]) -> np.ndarray:
        assert name == "my_encoder"
        return np.stack([embed_text(text) for text in texts])

    monkeypatch.setattr(encoders, "embed", embed_with)
    monkeypatch.setattr(encoders, "describe", lambda name: None)
    return lambda texts: embed_with("my_encoder", texts)
