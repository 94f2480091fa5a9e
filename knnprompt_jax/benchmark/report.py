"""What a benchmark measured, as text for the terminal and as a JSON file."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from knnprompt_jax import files, tables
from knnprompt_jax.benchmark import search
from knnprompt_jax.benchmark import settings as settings_lib

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "torch", "transformers", "gguf")
Result = Mapping[str, Any]


def environment() -> dict[str, Any]:
    """Where and with what the numbers were measured."""
    installed = {distribution.name for distribution in importlib.metadata.distributions()}
    return {
        "command": " ".join(sys.argv),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "host": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES if name in installed}
        | {"python": platform.python_version()},
    }


def write(folder: pathlib.Path, result: Result) -> pathlib.Path:
    """Writes a result whole or not at all, under a name that no other has; returns where."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = result["environment"]["date"].replace(":", "").replace("+0000", "Z")
    path = folder / f"benchmark-{stamp}-{os.getpid()}.json"
    with files.new_file(path) as unfinished:
        unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def render(result: Result) -> str:
    """The tables of all modes that ran."""
    where = result["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    sections = [f"{_model(result)}, {result['settings']['dtype']}, {where['device']} ({where['host']})\n{versions}"]
    modes = {"construction": _construction, "search": _search, "growth": _growth}
    return "\n\n".join([*sections, *(render(result[mode]) for mode, render in modes.items() if mode in result)])


def _model(result: Result) -> str:
    model = result["model"]
    weights = f"a GGUF file's weights ({', '.join(model['stored'])})" if model["stored"] else "random weights"
    return f"{model['shape']}, {model['parameters'] / 1e6:,.1f} million parameters, {weights}"


def _construction(measured: Result) -> str:
    work = measured["workload"]
    packed, peak = measured["packed_tokens"] / work["suffix_tokens"], measured["peak_flops_per_second"]
    all_blocks = measured["share_of_peak_all_blocks"]
    rows = [
        ["anchors/s", f"{measured['anchors_per_second']:,.1f}"],
        ["suffix tokens/s", f"{measured['suffix_tokens_per_second']:,.0f}"],
        ["packed slots used", f"{measured['fill']:.1%}"],
        ["packed tokens, shared ones once, of suffix tokens", f"{packed:.1%}"],
        ["model GFLOP/s", f"{measured['flops_per_second'] / 1e9:,.1f}"],
        [f"peak GFLOP/s of matrix products, {measured['devices']} device(s)", f"{peak / 1e9:,.1f}"],
        ["share of the peak, operations that are needed", f"{measured['share_of_peak']:.1%}"],
        ["GFLOP/s of products of the model's widths", f"{measured['widths_flops_per_second'] / 1e9:,.1f}"],
        ["share of those, operations that are needed", f"{measured['share_of_widths']:.1%}"],
        ["share of the peak, every suffix's tokens in all blocks counted", f"{all_blocks:.1%}"],
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
        f"{work['suffix_tokens'] / work['anchors']:.1f} tokens per suffix",
        tables.render(["", "ours"], rows),
        "",
        tables.render(["", "prompts per turn", "prompts/s", "ours: times faster"], compared),
    ]
    lines += [
        f"Without {'; '.join(settings_lib.PEERS[name] for name, other in measured['absent'].items() if other == reason)}: {reason}."
        for reason in dict.fromkeys(measured["absent"].values())
    ]
    if measured["llama"]:
        lines.append(_llama(measured["llama"]))
    lines += [_agreement(name, other) for name, other in measured["agreement"].items()]
    return "\n".join(lines)


def _llama(measured: Result) -> str:
    activations = ", and activations in 8 bits where they meet quantised ones" if measured["quantised"] else ""
    return (
        f"llama.cpp (llama-cpp-python {measured['version']}, {measured['threads']} threads) computes with the file's weights as stored "
        f"({', '.join(measured['stored'])}){activations}; all others with the same weights as {measured['dtype_of_others']}."
    )


def _agreement(name: str, measured: Result) -> str:
    if "kl_mean" in measured:
        return (
            f"Distributions of {measured['prompts']} prompts have a KL divergence from ours of {measured['kl_mean']:.1e} nats "
            f"on average, {measured['kl_max']:.1e} at most: {settings_lib.PEERS[name]}"
        )
    return (
        f"Log-probabilities of {measured['prompts']} prompts with the same weights differ by "
        f"{measured['max_abs_difference']:.1e} at most: {settings_lib.PEERS[name]}"
    )


def _search(measured: Result) -> str:
    libraries = (search.STATES, search.KERNEL, search.NUMPY, search.TORCH)
    rows = [
        [row["kind"], f"{row['anchors']:,}", str(row["queries"])]
        + [f"{row['bytes'] / 1e6:,.1f}", f"{row['search_bytes'] / 1e6:,.1f}"]
        + [_rate(row["queries_per_second"].get(name)) for name in libraries]
        + [f"{row['share_of_bound']:.0%}", row["bound"]]
        for row in measured["rows"]
    ]
    header = ["store", "anchors", "queries", "MB", "MB in search", "queries/s from states", "from keys"]
    header += ["NumPy product", "PyTorch product", "keys: of bound", "bound"]
    return (
        f"Search ({measured['distance']}): {measured['peak_flops_per_second'] / 1e9:,.1f} GFLOP/s of matrix products, "
        f"{measured['bytes_per_second'] / 1e9:,.1f} GB/s of memory\n{tables.render(header, rows)}"
    )


def _growth(measured: Result) -> str:
    header = ["anchors", "prefix tokens", "anchors/s"]
    header += ["ms per anchor", "of the first", "GFLOP per anchor", "of the first"]
    parts = [
        tables.render(header, _growth_rows(measured[name])) for name in ("anchors", "prefix_tokens") if measured[name]
    ]
    memory = f"peak memory {measured['peak_bytes'] / 1e6:,.0f} MB ({measured['peak_bytes_of']})"
    head = f"Growth: {measured['suffix_tokens']:g} tokens per suffix on average"
    return "\n\n".join([head, *parts, f"compilations {measured['compilations']}, {memory}"])


def _growth_rows(series: Sequence[Result]) -> list[list[str]]:
    first = series[0]
    return [
        [f"{row['anchors']:,}", f"{row['prefix_tokens']:,}", f"{row['anchors_per_second']:,.1f}"]
        + [f"{row['ms_per_anchor']:.2f}", f"{row['ms_per_anchor'] / first['ms_per_anchor']:.2f}"]
        + [f"{row['gflop_per_anchor']:.3f}", f"{row['gflop_per_anchor'] / first['gflop_per_anchor']:.2f}"]
        for row in series
    ]


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _processor() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.processor())
