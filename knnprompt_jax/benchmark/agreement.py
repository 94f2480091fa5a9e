"""Whether the peers of other libraries compute what is computed here: log-probabilities of the same prompts, compared."""

import tempfile

import numpy as np

from knnprompt_jax import errors, lm
from knnprompt_jax.benchmark import other_libraries, peer_process, peers
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import representations


def measure(
    model: lm.LanguageModel,
    sampled: peers.Sample,
    settings: settings_lib.BenchmarkSettings,
    processes: other_libraries.Processes,
) -> dict[str, dict[str, float]]:
    """For each peer, how many prompts were compared and how far apart the distributions are.

    With PyTorch's, which have the same float32 weights, the largest difference of log-probabilities, on some whole prompts and
    on a batch. With llama.cpp's, which rounds on its way, KL(ours, llama.cpp's) in nats, mean and largest, on all its batches.

    Raises UserError where a peer fails, or has another vocabulary.
    """
    length, count, batches = len(sampled.prefix_P), settings.agreement, sampled.batches
    work = {
        "torch_one": ([tokens[length:] for tokens in sampled.prompts[:count]], count),
        "torch_cached": (batches[0], 1),
        "llama_cached": ([suffix for batch in batches for suffix in batch], len(batches)),
    }
    compared: dict[str, dict[str, float]] = {}
    for name, process in processes.items():
        suffixes, limit = work[name]
        ours_NV = _ours(model, sampled.prefix_P, suffixes)
        theirs_NV = _theirs(process, name, limit, ours_NV.shape)
        distance = _divergences if name in peer_process.LLAMA.peers else _differences
        compared[name] = {"prompts": len(suffixes), **distance(ours_NV, theirs_NV)}
    return compared


def _ours(model: lm.LanguageModel, prefix_P: np.ndarray, suffixes: list[np.ndarray]) -> np.ndarray:
    group = layout.PromptGroup(prefix_P, tuple(suffixes), np.arange(len(suffixes)))
    states = model.states(layout.Prompts((group,), num_prompts=len(suffixes)))
    return np.asarray(representations.log_probabilities(model.head, states))


def _theirs(process: peer_process.PeerProcess, name: str, limit: int, shape: tuple[int, ...]) -> np.ndarray:
    with tempfile.NamedTemporaryFile() as file:
        process.ask("save", of=name, limit=limit, path=file.name)
        theirs = np.fromfile(file.name, np.float32)
    if theirs.size != np.prod(shape):
        raise errors.UserError(
            f"{settings_lib.PEERS[name]}: {theirs.size} log-probabilities of {shape[0]} prompts, and there are {shape[1]} tokens"
        )
    return theirs.reshape(shape)


def _differences(ours_NV: np.ndarray, theirs_NV: np.ndarray) -> dict[str, float]:
    return {"max_abs_difference": float(np.abs(ours_NV - theirs_NV).max())}


def _divergences(ours_NV: np.ndarray, theirs_NV: np.ndarray) -> dict[str, float]:
    logp_NV, logq_NV = ours_NV.astype(np.float64), theirs_NV.astype(np.float64)
    # Rounding leaves sums that are not quite 1; with what they differ by, the sum is never negative.
    kl_N = (np.exp(logp_NV) * (logp_NV - logq_NV) - np.exp(logp_NV) + np.exp(logq_NV)).sum(-1)
    return {"kl_mean": float(kl_N.mean()), "kl_max": float(kl_N.max())}
