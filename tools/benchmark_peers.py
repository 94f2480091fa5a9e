"""Measure the construction of a datastore beside PyTorch, and beside llama.cpp on the same GGUF file.

pip install torch llama-cpp-python
python -m tools.benchmark_peers --model=smollm2 --task=trec --data_dir=data --peer_suffixes=64

Further options are those of experiments/benchmark.py. A procedure with a cached prefix reads it before the clock
starts, because its share of a sample would be too large. Ours reads its prefix in every turn. PyTorch shares the
device: on a GPU, set XLA_PYTHON_CLIENT_PREALLOCATE=false to leave memory for it.
"""

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from knnprompt_jax.cli import app
from knnprompt_jax.cli import command_settings as settings_lib
from knnprompt_jax.common import errors, options
from tools.peer_process import PeerProcess

if TYPE_CHECKING:
    from knnprompt_jax.devices import workload
    from knnprompt_jax.inference import lm
    from knnprompt_jax.inference.prompts import layout
    from knnprompt_jax.models import decoder

TORCH = {
    "torch_one": "transformers, one full prompt at a time (released code)",
    "torch_cached": "transformers, cached prefix, sorted padded batches",
}
LLAMA = {"llama_cached": "llama.cpp, cached prefix, sorted batches, weights as stored"}
PROCEDURES = TORCH | LLAMA
"""The titles of procedures by name. The name ends in "_cached" if the procedure caches the prefix."""
AGREEMENT = ("largest_difference", "mean_kl", "largest_kl")


class PeerSettings(settings_lib.BenchmarkSettings):
    """The procedures to compare."""

    peers: tuple[str, ...] = options.option(tuple(PROCEDURES), "Procedures to time.", choices=PROCEDURES)
    peer_prompts: int = options.option(8, "Whole prompts per turn of a peer without a cached prefix.", least=1)
    peer_suffixes: int = options.option(128, "Suffixes per turn of a peer with a cached prefix.", least=1)
    peer_batch: int = options.option(32, "Prompts per batch of the peers.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse(("dry_run",), "beside other libraries")


@dataclasses.dataclass(frozen=True)
class Sample:
    """Whole prompts, and batches of suffixes of the sorted workload; both have its mix of lengths."""

    prompts: list[np.ndarray]
    prefix_P: np.ndarray
    batches: list[list[np.ndarray]]

    def suffixes(self, procedure: str) -> list[np.ndarray]:
        """Return the suffixes of the prompts that a procedure reads per turn."""
        if procedure.endswith("_cached"):
            return [suffix for batch in self.batches for suffix in batch]
        return [tokens[len(self.prefix_P) :] for tokens in self.prompts]


def run(settings: PeerSettings) -> dict[str, Any]:
    """Time whole passes over the anchors of a task in turn with the peers.

    Raises:
        UserError: impossible settings, a model that cannot be loaded, or a peer that fails.
    """
    from knnprompt_jax.devices import speeds, workload

    subject = workload.describe(settings.model)
    work = workload.build(settings, subject, settings.anchors)
    first = speeds.first_pass(work)
    sampled = sample(work.largest, settings)
    with start_all(work.model.execution.decoder, subject, sampled, settings) as (running, absent):
        turns = {name: functools.partial(process.time, name) for name, process in running.items()}
        record, seconds = speeds.measure(settings, work, turns)
        agreement = {name: compare(work.model, sampled, name, process) for name, process in running.items()}
    ours = record["anchors_per_second"]
    rows = [_row("ours", work.prompts.num_prompts, ours, ours, dict.fromkeys(AGREEMENT, ""))]
    for name in running:
        count = len(sampled.suffixes(name))
        rows.append(_row(PROCEDURES[name], count, count / seconds[name], ours, agreement[name]))
    missing = [{"without": PROCEDURES[name], "reason": reason} for name, reason in absent.items()]
    return first | record | {"peers": rows, "absent": missing}


def _row(title: str, num_prompts: int, rate: float, ours: float, agreement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a procedure in the table of peers."""
    return {
        "peer": title,
        "prompts_per_turn": num_prompts,
        "prompts_per_second": rate,
        "ours_is_times_faster": ours / rate,
        **agreement,
    }


def compare(model: "lm.LanguageModel", sampled: Sample, name: str, process: PeerProcess) -> dict[str, float]:
    """Compare the log-probabilities of a peer with ours, for all prompts of its turn.

    A library that rounds activations (llama.cpp) differs a lot where probabilities are small, so the KL divergence says
    more than the difference.

    Returns:
        The numbers `AGREEMENT`: the largest difference of log-probabilities from ours (nats), and the mean and the
        largest KL divergence of distributions from ours.

    Raises:
        UserError: the peer fails, or has another vocabulary.
    """
    from knnprompt_jax.datastore import distances
    from knnprompt_jax.inference import states
    from knnprompt_jax.inference.prompts import layout

    suffixes = sampled.suffixes(name)
    group = layout.PromptGroup(sampled.prefix_P, layout.TokenRows.of(suffixes), np.arange(len(suffixes)))
    ours = states.read(model, layout.Prompts.from_groups([group], len(suffixes)))
    ours_NV = np.asarray(distances.log_probabilities(model.head, ours), np.float64)
    theirs_NV = np.concatenate(process.call(name, returns_result=True)[1]).astype(np.float64)
    if theirs_NV.shape != ours_NV.shape:
        raise errors.UserError(
            f"{process.title}, {name}: it has {theirs_NV.shape[1]} tokens; the model has {ours_NV.shape[1]}"
        )
    # Rounded distributions do not sum to 1; with the correction the divergence is never negative.
    kl_N = (np.exp(ours_NV) * (ours_NV - theirs_NV) - np.exp(ours_NV) + np.exp(theirs_NV)).sum(-1)
    numbers = np.abs(ours_NV - theirs_NV).max(), kl_N.mean(), kl_N.max()
    return dict(zip(AGREEMENT, map(float, numbers), strict=True))


def sample(group: "layout.PromptGroup", settings: PeerSettings) -> Sample:
    """Return prompts of the group that are evenly spaced by length."""
    by_length = sorted(group.suffixes, key=len)
    whole = [np.concatenate([group.prefix_P, suffix]) for suffix in _spaced(by_length, settings.peer_prompts)]
    size = settings.peer_batch
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    return Sample(whole, group.prefix_P, _spaced(batches, max(1, settings.peer_suffixes // size)))


def _spaced(items: Sequence, count: int) -> list:
    count = min(count, len(items))
    return [items[int((i + 0.5) * len(items) / count)] for i in range(count)]


@contextlib.contextmanager
def start_all(
    weights: "decoder.Decoder", subject: "workload.ModelShape", sampled: Sample, settings: PeerSettings
) -> Iterator[tuple[dict[str, PeerProcess], dict[str, str]]]:
    """Start the procedures that the settings name.

    Yield the processes by procedure name, and the reasons why other procedures cannot run.
    """
    libraries = (
        ("PyTorch", "tools.torch_peers", TORCH, functools.partial(export, weights, subject)),
        ("llama.cpp", "tools.llama_peers", LLAMA, lambda folder: find_file(subject)),
    )
    running: dict[str, PeerProcess] = {}
    absent: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for title, module, procedures, prepare in libraries:
            names = [name for name in procedures if name in settings.peers]
            if not names:
                continue
            process = PeerProcess(title, module)
            stack.enter_context(process.pool)
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                _load(process, prepare(folder), sampled, settings.dtype)
            except errors.UserError as error:
                absent |= dict.fromkeys(names, str(error))
            else:
                running |= dict.fromkeys(names, process)
        yield running, absent


def export(weights: "decoder.Decoder", subject: "workload.ModelShape", folder: pathlib.Path) -> pathlib.Path:
    """Write the model for `transformers` and return the folder."""
    import jax.numpy as jnp

    from tools import export_model

    # The padding token of some families would be beyond a smaller vocabulary.
    export_model.save(folder, weights, {**subject.hf, "pad_token_id": None}, jnp.float32)
    return folder


def find_file(subject: "workload.ModelShape") -> pathlib.Path:
    """Return the GGUF file of a model; raise UserError if it has none."""
    from knnprompt_jax.models import hub

    file = hub.find(subject.name) if subject.path else None
    if file is None or file.suffix != ".gguf":
        raise errors.UserError("llama.cpp reads GGUF files and --model names none")
    return file


def _load(process: PeerProcess, path: pathlib.Path, sampled: Sample, dtype: str) -> None:
    """Load the model and the sample in the process; raise UserError if that fails."""
    from knnprompt_jax.devices import machine

    process.call(
        "load",
        path=str(path),
        dtype=dtype,
        prompts=[prompt.tolist() for prompt in sampled.prompts],
        prefix=sampled.prefix_P.tolist(),
        batches=[[suffix.tolist() for suffix in batch] for batch in sampled.batches],
        threads=machine.num_cores(),
    )


if __name__ == "__main__":
    FLAGS = app.Flags(PeerSettings, keeps_programs=False)

    def main() -> None:
        """Print and save the result."""
        from knnprompt_jax.devices import device_report, machine

        device_report.publish(FLAGS.value.output, "peers", FLAGS.value, machine.describe() | run(FLAGS.value))

    FLAGS.run(main)
