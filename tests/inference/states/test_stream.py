"""The stages of a reading run at the same time, and none is far ahead of the next."""

import time

import numpy as np
import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.inference.states import reading
from knnprompt_jax.tasks.task import Example, Task
from tests.inference.states import killed

TASK = Task("digits", ("text",), "{text}=", ("0", "1"), ("0", "1"))
BLOCK = 9  # Prompts, more than are checked; each block is a chunk.
NUM_BLOCKS = 24


class Device:
    """A device on which each pass takes some seconds; it runs one after the other, without the interpreter."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.free = 0.0  # The time at which it has run all queued passes.
        self.num_queued = 0
        self.num_waiting = 0
        self.most_waiting = 0

    def queue_pass(self, model, groups, *_):
        self.num_queued += 1
        self.num_waiting += 1
        self.most_waiting = max(self.most_waiting, self.num_waiting)
        self.free = max(self.free, time.monotonic()) + self.seconds
        return QueuedPass(self, self.free, sum(len(group.suffixes) for group in groups), model.config.state_width + 1)


class QueuedPass:
    def __init__(self, device, done, *shape):
        self.device = device
        self.done = done
        self.shape = shape

    def wait(self):
        time.sleep(max(0.0, self.done - time.monotonic()))
        self.device.num_waiting -= 1

    def rows(self):
        return np.zeros(self.shape, np.float32)


@pytest.fixture
def run(monkeypatch):
    """Read prompts with a tokenizer and a device that take some seconds per block; return the device and the time."""

    def run(tokenizer_seconds, device_seconds):
        device = Device(device_seconds)
        built_ahead = []

        def tokenize(texts):
            if len(texts) == BLOCK:  # Neither checked nor truncated prompts.
                time.sleep(tokenizer_seconds)
                built_ahead.append(1 + len(built_ahead) - device.num_queued)
            return [[ord(character) for character in text] for text in texts]

        texts = [f"{number % BLOCK}{number:03}" for number in range(BLOCK * NUM_BLOCKS)]
        examples = [Example({"text": text}, "", number) for number, text in enumerate(texts)]
        model = killed.make_model()
        monkeypatch.setattr(layout, "_BLOCK_PROMPTS", BLOCK)
        chunk_steps = BLOCK * len("0000=") / model.step_tokens
        monkeypatch.setattr(reading, "_CHUNK_STEPS", chunk_steps)
        monkeypatch.setattr(reading, "_FIRST_CHUNK_STEPS", chunk_steps)
        monkeypatch.setattr(type(model), "platform", "gpu")
        monkeypatch.setattr(lm, "QueuedPass", device.queue_pass)
        started = time.monotonic()
        states.read(model, layout.build_prompts(TASK, [], examples, tokenize, 99))
        return device, max(built_ahead), time.monotonic() - started

    return run


@pytest.mark.parametrize(("tokenizer_seconds", "device_seconds"), [(0.04, 0.01), (0.04, 0.04), (0.01, 0.04)])
def test_a_reading_takes_the_time_of_the_slower_stage(run, tokenizer_seconds, device_seconds):
    slower = NUM_BLOCKS * max(tokenizer_seconds, device_seconds)
    seconds = min(run(tokenizer_seconds, device_seconds)[2] for _ in range(3))  # Other processes may disturb one.
    assert seconds <= 1.15 * slower


def test_queues_are_bounded(run):
    """A fast tokenizer does not build all prompts, and few passes are queued on the device."""
    device, most_built, _ = run(0.0, 0.01)
    assert device.num_queued == NUM_BLOCKS
    assert device.most_waiting == 2
    assert most_built <= 4


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("bad", ["", "\xff"], ids=["no tokens", "a token outside the vocabulary"])
def test_an_error_in_a_later_block_ends_the_reading(monkeypatch, tmp_path, platform, bad):
    """It is raised although earlier chunks are queued, and what they cached is whole."""
    model = killed.make_model()
    monkeypatch.setattr(layout, "_BLOCK_PROMPTS", BLOCK)
    for name in ("_CHUNK_STEPS", "_CHUNK_STEPS_ON_CPU", "_FIRST_CHUNK_STEPS"):
        monkeypatch.setattr(reading, name, BLOCK * 2 / model.step_tokens)
    monkeypatch.setattr(type(model), "platform", platform)
    task = Task("letters", ("text",), "{text}", ("0", "1"), ("0", "1"))
    texts = [f"{chr(65 + number % BLOCK)}{chr(65 + number // BLOCK)}" for number in range(4 * BLOCK)]
    cache = states.DiskCache(tmp_path, 2**20)

    def read(texts):
        examples = [Example({"text": text}, "", number) for number, text in enumerate(texts)]
        return states.read(model, layout.build_prompts(task, [], examples, tokenize, 99), cache)

    def tokenize(texts):
        return [[ord(character) for character in text] for text in texts]

    with pytest.raises(errors.UserError, match="has no tokens|token id 255"):
        read([*texts[:-1], bad])
    before = model.statistics.prompts
    got = read(texts)
    assert 0 < model.statistics.prompts - before < len(texts), "finished chunks are not read again"
    expected = states.read(
        killed.make_model(),
        layout.build_prompts(task, [], [Example({"text": text}, "", 0) for text in texts], tokenize, 99),
    )
    np.testing.assert_allclose(got.hidden_NE, expected.hidden_NE, atol=1e-4)
