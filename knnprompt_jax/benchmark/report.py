"""A benchmark's result as text for the terminal and as a JSON file."""

import os
import pathlib
import platform
from collections.abc import Mapping
from typing import Any

import jax

from knnprompt_jax import tables
from knnprompt_jax.benchmark import search
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.planning import records

_SEARCH_TITLES = {search.STATES: "queries/s from states", search.KERNEL: "from keys", "numpy": "NumPy product"}
_SEARCH_TITLES |= {"faiss": "FAISS", "sklearn": "scikit-learn"}
Result = Mapping[str, Any]


def environment() -> dict[str, Any]:
    """Return the command, the date, the versions and the hardware."""
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    processor = next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.processor())
    return records.environment() | {
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "host": f"{processor}, {len(os.sched_getaffinity(0))} cores",
    }


def write(folder: pathlib.Path, result: Result) -> pathlib.Path:
    """Write the result as JSON under a new name, and return its path."""
    return records.write(folder, "benchmark", result["environment"]["date"], result)


def render(result: Result) -> str:
    """Return the tables of all modes that ran."""
    model, where = result["model"], result["environment"]
    weights = "random weights" if model["is_random"] else "its own weights"
    head = f"{model['name']}, {model['parameters'] / 1e6:,.1f} million parameters, {weights}, {result['settings']['dtype']}"
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    sections = [f"{head}, {where['device']} ({where['host']})\n{versions}"]
    modes = {"construction": _construction, "search": _search}
    return "\n\n".join([*sections, *(render(result[mode]) for mode, render in modes.items() if mode in result)])


def _construction(measured: Result) -> str:
    work, peak = measured["workload"], measured["peak_flops_per_second"]
    all_blocks = measured["flops_all_blocks"] * measured["anchors_per_second"] / work["anchors"] / peak
    rows = [
        ["anchors/s", f"{measured['anchors_per_second']:,.1f}"],
        ["suffix tokens/s", f"{measured['suffix_tokens_per_second']:,.0f}"],
        ["packed slots used", f"{measured['fill']:.1%}"],
        [
            "packed tokens (shared ones once) / suffix tokens",
            f"{measured['packed_tokens'] / work['suffix_tokens']:.1%}",
        ],
        ["model GFLOP/s", f"{measured['flops_per_second'] / 1e9:,.1f}"],
        [f"peak GFLOP/s of matrix products, {measured['devices']} device(s)", f"{peak / 1e9:,.1f}"],
        ["needed operations, share of the peak", f"{measured['share_of_peak']:.1%}"],
        ["needed operations, share of products of the model's widths", f"{measured['share_of_widths']:.1%}"],
        ["all suffix tokens in all blocks, share of the peak", f"{all_blocks:.1%}"],
        ["compilations", str(measured["compilations"])],
        ["compile time, s", f"{measured['compile_seconds']:.2f}"],
        [f"peak memory, MB ({measured['peak_bytes_of']})", f"{measured['peak_bytes'] / 1e6:,.0f}"],
    ]
    compared = [
        [settings_lib.PEERS.get(name, "ours"), str(peer["prompts"]), f"{peer['prompts_per_second']:,.2f}"]
        + [f"{peer['ours_is_times_faster']:.1f}"]
        for name, peer in measured["peers"].items()
    ]
    lines = [
        f"Construction: {work['name']}, {work['anchors']} anchors, prefix {work['prefix_tokens']} tokens, "
        f"{work['suffix_tokens'] / work['anchors']:.1f} tokens per suffix (tokenizer of {work['tokenizer']})",
        tables.render(["", "ours"], rows),
        "",
        tables.render(["", "prompts per turn", "prompts/s", "ours: times faster"], compared),
    ]
    lines += [f"Without {settings_lib.PEERS[name]}: {reason}." for name, reason in measured["absent"].items()]
    if llama := measured["llama"]:
        activations = ", and activations in 8 bits where they meet quantised ones" if llama["is_quantised"] else ""
        lines.append(
            f"llama.cpp (llama-cpp-python {llama['version']}, {llama['threads']} threads) computes with the file's weights as stored "
            f"({', '.join(llama['stored'])}){activations}; all others with the same weights as {llama['dtype_of_others']}."
        )
    lines += [
        f"Log-probabilities of {found['prompts']} prompts differ from ours by {found['max_abs_difference']:.1e} at most; KL divergence "
        f"{found['kl_mean']:.1e} nats on average, {found['kl_max']:.1e} at most: {settings_lib.PEERS[name]}"
        for name, found in measured["agreement"].items()
    ]
    return "\n".join(lines)


def _search(measured: Result) -> str:
    titles = {name: title for name, title in _SEARCH_TITLES.items() if name in measured["rows"][0]["seconds"]}
    header = ["store", "anchors", "queries", "MB", "MB in search", *titles.values(), "keys: of bound", "bound"]
    rows = [
        [row["kind"], f"{row['anchors']:,}", str(row["queries"])]
        + [f"{row['bytes'] / 1e6:,.1f}", f"{row['search_bytes'] / 1e6:,.1f}"]
        + [f"{row['queries_per_second'][name]:,.1f}" for name in titles]
        + [f"{row['share_of_bound']:.0%}", row["bound"]]
        for row in measured["rows"]
    ]
    return (
        f"Search ({measured['distance']}): {measured['peak_flops_per_second'] / 1e9:,.1f} GFLOP/s of matrix products, "
        f"{measured['bytes_per_second'] / 1e9:,.1f} GB/s of memory\n{tables.render(header, rows)}"
    )
