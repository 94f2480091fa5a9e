"""Fixtures every test may use."""

import gc
import importlib.util
import os
import pathlib
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

import knnprompt_jax as kp
from knnprompt_jax.common import errors, files
from tests import processes

hypothesis.settings.register_profile("fixed", derandomize=True)
hypothesis.settings.load_profile("fixed")
if importlib.util.find_spec("libtpu"):  # For tests/devices; all others would look for a TPU, and say so.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"


def pytest_configure(config: pytest.Config) -> None:
    """Make compilation quick, and leave the user's cache folder alone.

    All processes of a run share the compiled slow programs.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:  # It has the environment of its parent.
        return
    folder = tempfile.TemporaryDirectory(prefix="knnprompt_programs_")
    config.add_cleanup(folder.cleanup)
    os.environ.setdefault("KNNPROMPT_CACHE", folder.name)
    os.environ.setdefault("XLA_FLAGS", processes.COMPILE_QUICKLY)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", "-1")  # Otherwise each write looks at every entry.
    files.keep_programs()


MOST_BYTES = 3 * 2**30
"""Resident memory of a test process, beyond which compiled programs are dropped after each file of tests."""


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Thousands of tests compile thousands of programs, which JAX keeps."""
    yield
    status = pathlib.Path("/proc/self/statm")
    resident = int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0
    if "jax" in sys.modules and resident > MOST_BYTES:
        sys.modules["jax"].clear_caches()
        gc.collect()


@pytest.fixture(scope="session", autouse=True)
def one_line_errors() -> Iterator[None]:
    """Check that every message to the user is one line."""
    init = errors.UserError.__init__

    def checked(error: errors.UserError, message: str) -> None:
        assert "\n" not in message, message
        init(error, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors.UserError, "__init__", checked)
        yield


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder of reference data beside the repository; tests that need it are skipped where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no reference data beside the repository ({SHARED.name}/data)")
    return SHARED


@pytest.fixture(scope="session")
def tiny() -> "kp.LanguageModel":
    """The shipped model, loaded once: a second one would compile the same programs again."""
    return kp.demo_model("tiny")


@pytest.fixture(scope="module")
def loaded_once() -> Iterator[dict]:
    """Each model is loaded once, and so compiled once per shape, for all jobs of a file."""
    from knnprompt_jax.inference import lm

    loaded: dict[Any, lm.LanguageModel] = {}
    from_pretrained = lm.LanguageModel.from_pretrained

    def once(*arguments: Any, **options: Any) -> lm.LanguageModel:
        key = (*arguments, *(value for option, value in sorted(options.items()) if option != "mesh"))
        if key not in loaded:
            loaded[key] = from_pretrained(*arguments, **options)
        statistics = loaded[key].statistics
        vars(statistics).update(vars(type(statistics)()))  # As those of a model that was just loaded.
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm.LanguageModel, "from_pretrained", once)
        patch.setattr(lm.LanguageModel, "free", lambda self: None)
        yield loaded


@pytest.fixture(scope="session")
def demo_classifier(tiny: "kp.LanguageModel") -> "kp.KNNPrompting":
    """The tiny model's classifier of the first 30 train rows of the demo task, with one demonstration per class."""
    from knnprompt_jax import tasks

    train = tasks.load_rows(tasks.get("demo"), "train")[:30]
    classifier = kp.KNNPrompting(tiny, tasks.get("demo"), demo_shots=1)
    return classifier.fit([row.fields for row in train], [row.label for row in train])


@pytest.fixture(scope="session")
def small_decoder() -> Callable:
    from tests import random_weights

    return random_weights.small


@pytest.fixture(scope="session")
def decoded(small_decoder: Callable) -> types.SimpleNamespace:
    """41 anchors and 67 queries of the small GPT-2, 4 classes: states of our pass, float64 log-probabilities of NumPy.

    Has `head`, `label_tokens`, the states `anchors` and `queries`, their classes `y_N` and `y_Q`, `logp_NV` and
    `logp_QV`.
    """
    import jax
    import numpy as np
    from scipy import special

    from knnprompt_jax.inference import lm
    from knnprompt_jax.inference import states as states_lib
    from tests import prompt_groups

    model, rng = small_decoder("gpt2"), np.random.default_rng(7)
    tokens_NT = rng.integers(0, model.config.vocab_size, (41 + 67, 31)).astype(np.int32)
    states = states_lib.read(lm.LanguageModel.from_decoder(model, range(211)), prompt_groups.make(tokens_NT))
    logits_NV = np.asarray(jax.jit(model)(tokens_NT)[:, -1], np.float64) @ np.asarray(model.head.rows_VE, np.float64).T
    logp_NV = special.log_softmax(logits_NV, axis=-1)
    classes = rng.integers(0, 4, len(tokens_NT))
    return types.SimpleNamespace(
        head=model.head,
        label_tokens=[193, 186, 102, 168],  # Likely ones: distances by label words differ from anchor to anchor.
        **{"anchors": states.take_replicated(slice(41)), "y_N": classes[:41], "logp_NV": logp_NV[:41]},
        **{"queries": states.take_replicated(slice(41, None)), "y_Q": classes[41:], "logp_QV": logp_NV[41:]},
    )
