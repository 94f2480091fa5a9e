"""Render docs/findings.md, reliability.md, tables.md and the README's accuracy from docs/sources and docs/records.

python -m tools.render_docs
"""

import collections
import functools
import itertools
import math
import pathlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from matplotlib import figure

from knnprompt_jax.report import drawing, names
from knnprompt_jax.report import records as records_lib
from tools import analyses as analyses_lib
from tools import measure_reliability, pool_tables, reliability_tables, scale_tables, scales

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FIGURES = {
    "by_size": DOCS / "accuracy_by_size.png",
    "by_rows": DOCS / "accuracy_by_rows.png",
    "worth": DOCS / "whole_distribution.png",
}
PAGES = ("findings.md", "reliability.md", "tables.md")
ANALYSES = "analyses"
POOL = "pool"
MATCHED_CONTEXT = 1024  # Tokens; the records of `matched` have no other.
SCALES = ("matched", "few_shot", "precision", "scale")
HEAD = "<!-- Made by tools/render_docs.py from docs/sources and docs/records. -->\n"
BLOCK = re.compile(r"(?<=<!-- made by tools/render_docs.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
IN_README = "gemma-3-270m"  # The model that README recommends for one's own texts.
# In the figure of accuracy against train rows, each with a note on its prompts.
LINES = {"icl": " (1,024 tokens)", "icl_many_shot": " (whole context)", "knn": "", "linear_probe": ""}
SHOWN_AGAIN = (
    "encoder_probe",
    "icl",
    "batch_calibration",
    "knn",
    "linear_probe",
)  # Beside methods with two demonstrations.
UNLABELLED = 512  # Its tick has no room for a label beside 1,024.
RIVALS = ("knn_kl_labels", "batch_calibration", "linear_probe", "encoder_probe")  # Of the whole distribution.
AT_LARGEST_M = ("icl", "knn", "knn_kl_labels")
FINE_TUNED_BESIDE = "smollm2"
FINE_TUNED_SHOTS = (32, 128)
RIVALS_OF_FINE_TUNING = ("knn", "linear_probe", "encoder_probe")
SHOWN_KS = (3, 15, 30)
GROWN = ("icl", "knn", "linear_probe", "encoder_probe")  # Run with more train rows than the other methods.


def load() -> dict[str, Any]:
    """Return the arguments of `render`, from the shipped records."""
    read = {name: _read(name) for name in (*SCALES, ANALYSES, POOL)}
    read["matched"] += [record for record in read[POOL] if record.source["context"] == MATCHED_CONTEXT]
    reliability = measure_reliability.load(measure_reliability.RECORDS)
    return read | {name: scales.Scale(read[name]) for name in SCALES} | {"reliability": reliability}


def _read(name: str) -> list[records_lib.Record]:
    return records_lib.read_all(DOCS / "records" / f"{name}{records_lib.PACKED}")


def render(
    matched: scales.Scale,
    few_shot: scales.Scale,
    precision: scales.Scale,
    scale: scales.Scale,
    analyses: Sequence[records_lib.Record],
    pool: Sequence[records_lib.Record],
    reliability: reliability_tables.Records,
) -> dict[pathlib.Path, str]:
    """Return the text of every page by its path."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS / "sources"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    values = {
        "matched": matched,
        "few_shot": few_shot,
        "precision": precision,
        "scale": scale,
        "largest": matched.of(AT_LARGEST_M),
        "models": scales.MODELS,
        "tables": scale_tables,
        "names": names,
        "verdict": scales.verdict,
        "papers": analyses_lib.papers,
        "on_tasks": analyses_lib.on_tasks,
        "figure": FIGURES["by_size"].name,
        "worth_figure": FIGURES["worth"].name,
        "in_readme": IN_README,
        "pool": pool_results(pool, few_shot, scale, matched),
        "pool_tables": pool_tables,
        "reliability": reliability,
        "reliability_tables": reliability_tables,
        "others": [name for name in scales.ORDER if name in SHOWN_AGAIN or name not in matched.methods],
        "fine_tuned": analyses_lib.beside_fine_tuning(analyses, matched, FINE_TUNED_BESIDE, RIVALS_OF_FINE_TUNING),
        **_comparisons(matched, few_shot),
        "fine_tuned_seeds": {m: analyses_lib.fine_tuned_seeds(analyses, m) for m in FINE_TUNED_SHOTS},
        "fine_tuned_tables": {
            m: scale_tables.means_table(
                analyses_lib.fine_tuned(analyses, matched, FINE_TUNED_BESIDE, RIVALS_OF_FINE_TUNING, m)
            )
            for m in FINE_TUNED_SHOTS
        },
        **_analyses(analyses, matched.of(GROWN)),
    }

    def text(name: str) -> str:
        return wrap(environment.get_template(name).render(values))

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text("readme_accuracy.md")
    return {
        **{DOCS / name: HEAD + text(name) for name in PAGES},
        ROOT / "README.md": BLOCK.sub(lambda _: block, readme),
    }


def pool_results(
    pool: Sequence[records_lib.Record], few_shot: scales.Scale, scale: scales.Scale, matched: scales.Scale
) -> pool_tables.Results:
    """Return the records for the tables of AutoClassifier.

    In-context learning and Batch Calibration have all m train rows per class as demonstrations, or M_T; the other
    methods have the two of `scale` where it has them. TF-IDF has AutoClassifier's train rows, which depend on the
    number of demonstrations.
    """
    drawn = {_draw_of(record) for record in pool if record.method == pool_tables.AUTO}
    same_rows = [record for record in pool if _draw_of(record) in drawn]
    in_context = [
        record for record in (*few_shot.records, *matched.records) if record.method in ("icl", "batch_calibration")
    ]
    return pool_tables.Results([*same_rows, *in_context, *scale.records, *matched.records, *few_shot.records])


def _draw_of(record: records_lib.Record) -> tuple[str, int, int, int]:
    """Return what decides which train rows a record's run draws."""
    return record.task, record.shots, record.demo_shots, record.seed


def _comparisons(matched: scales.Scale, few_shot: scales.Scale) -> dict[str, Any]:
    """Return the tasks of the findings, and the paper's differences on them."""
    first = matched.models[0]
    four = list(matched.shared(first, 32))
    binary = list(matched.shared(first, 128))

    def full_papers(size: str) -> list[str]:
        columns = [(four, 32), (binary, 128), ([scales.APART], 32), ([scales.APART], 128)]
        leads = [analyses_lib.papers(tasks, ("knn", m), ("icl", 0), size=size) for tasks, m in columns]
        has_anchors = size in ("0.8B", "1.5B")  # The others have none for SST2 at m = 32.
        return leads if has_anchors else ["–", *leads[1:]]

    def few_shot_papers(method: str) -> list[str]:
        columns = [(tasks, m) for tasks in (binary, [scales.APART]) for m in few_shot.shots]
        return [analyses_lib.papers(tasks, ("knn", m), (method, m), "few_shot") for tasks, m in columns]

    def most_common(task: str) -> str:
        return f"{matched.mean(first, scales.MOST_COMMON, 128, {task: [1]}):.1f}"

    def span_of(ours: str, theirs: str, m: int, task: str = "") -> str:
        """Return the smallest and the largest difference between two methods among the models."""
        leads = [matched.between(model, ours, theirs, m, task) for model in matched.models]
        means = [lead.mean for lead in leads if lead]
        return f"{min(means):+.1f} to {max(means):+.1f}"

    return {
        "span": functools.partial(span_of, "knn"),
        "span_of": span_of,
        "four": four,
        "binary": binary,
        "full_papers": [(f"paper, {size}", full_papers(size)) for size in ("0.8B", "1.5B", "2.7B", "30B")],
        "few_shot_papers": few_shot_papers,
        "most_common": most_common,
        "turned": functools.partial(analyses_lib.turned, matched),
        "cut": functools.partial(analyses_lib.truncated, matched),
    }


def _analyses(analyses: Sequence[records_lib.Record], grown: scales.Scale) -> dict[str, Any]:
    """Return the tables and functions of the analyses along other axes than m."""
    chosen_ks = [record for record in analyses_lib.of("choice_of_k", analyses) if record.cell["k"] in SHOWN_KS]
    skew_effect = functools.partial(analyses_lib.skew_effect, analyses)
    effects = {}
    for column in ("test skewed", "train skewed"):
        methods = ("contextual_calibration", "icl", "knn")
        effects[f"{column} − balanced"] = {names.method(name): str(skew_effect(column, name)) for name in methods}
    printed = [analyses_lib.most_common(analyses), *analyses_lib.printed_skewed()]
    return {
        "grown": grown,
        "one_demonstration": functools.partial(analyses_lib.one_demonstration, analyses, grown),
        "split_effect": functools.partial(analyses_lib.split_effect, analyses),
        "case_study": functools.partial(analyses_lib.case_study, analyses),
        "k_table": scale_tables.axis_table(chosen_ks, "k", (30, 3)),
        "imbalance_table": scale_tables.axis_table(analyses_lib.of("imbalance", analyses), "ratio", (0.015625, 0.5)),
        "upper_bound_table": scale_tables.means_table(
            analyses_lib.upper_bound(analyses), analyses_lib.printed_upper_bound()
        ),
        "prior_table": scale_tables.means_table(analyses_lib.skewed(analyses), printed, effects),
    }


def wrap(text: str) -> str:
    """Wrap paragraphs and list items at 120 columns; keep tables, headings, comments and indented blocks unchanged."""
    blocks = re.sub(r"\n{3,}", "\n\n", text).strip("\n").split("\n\n")
    return "\n\n".join(map(_wrap_block, blocks)) + "\n"


def _wrap_block(block: str) -> str:
    if block.startswith(("|", "#", "<", " ", "!")):
        return block
    items = []
    for item in re.split(r"\n(?=- )", block):
        indent = "  " if item.startswith("- ") else ""
        options = {"subsequent_indent": indent, "break_long_words": False, "break_on_hyphens": False}
        items.append(textwrap.fill(" ".join(item.split()), 120, **options))
    return "\n".join(items)


def draw_by_size(scale: scales.Scale, path: pathlib.Path) -> None:
    """Draw the mean accuracy against the size of the model, a panel per m, over the cells that all models have."""
    panels = {}
    baselines = []
    for m in scale.complete(scale.models):
        cells = scale.cells(scale.models, m)
        lines: dict[str, dict[float, float]] = collections.defaultdict(dict)
        for model in scale.models:
            size = scales.MODELS[model].parameters / 1e6
            shown = {names.method("icl"): "icl", "Best calibration": scale.best_calibration(model, m, cells)}
            shown |= {names.method(name): name for name in ("knn", "linear_probe")}
            for label, method in shown.items():
                lines[label][size] = scale.mean(model, method, m, cells)
        panels[f"m = {m}, {names.counted(len(cells), 'task')}"] = lines
        baselines.append(scale.mean(scale.models[0], "encoder_probe", m, cells))
    _draw(panels, "parameters, million", path, baselines)


def draw_by_rows(few_shot: scales.Scale, matched: scales.Scale, path: pathlib.Path) -> None:
    """Draw the mean accuracy against m, a panel for each of the two smallest models, over binary tasks of every m."""
    many_shot = matched.of(LINES)
    panels = {}
    for model in few_shot.models[:2]:
        tasks = set.intersection(
            *(set(part.shared(model, m)) for part in (few_shot, many_shot) for m in part.complete([model]))
        )
        tasks -= {scales.CAPPED}
        lines = {}
        for name, note in LINES.items():
            gap = {16: math.nan}  # The number of demonstrations changes here.
            lines[names.method(name) + note] = (
                few_shot.means(model, name, tasks) | gap | many_shot.means(model, name, tasks)
            )
        titles = ", ".join(map(names.task, names.ordered("task", tasks)))
        panels[f"{scales.MODELS[model].short}: {titles}"] = lines
    _draw(panels, "train rows per class (up to 8: kNN with\none demonstration per class)", path)


def draw_worth(matched: scales.Scale, path: pathlib.Path) -> None:
    """Draw kNN Prompting minus each rival with its interval against the model's size; a panel per rival."""
    num_tasks = {m: len(matched.shared(matched.models[0], m)) for m in (32, 128)}
    shown = [(f"{count} binary tasks, m = {m}", m, "") for m, count in num_tasks.items()]
    shown.append(("TREC, m = 128", 128, scales.APART))
    sizes = {model: scales.MODELS[model].parameters / 1e6 for model in matched.models}
    with drawing.style():
        drawn = figure.Figure(figsize=(6.4, 5.4), layout="constrained", facecolor="white")
        all_axes = drawn.subplots(2, len(RIVALS) // 2, sharex=True, sharey=True)
        for axes, rival in zip(all_axes.flat, RIVALS, strict=True):
            for index, (label, m, task) in enumerate(shown):
                found = {size: matched.between(model, "knn", rival, m, task) for model, size in sizes.items()}
                leads = {size: lead for size, lead in found.items() if lead}
                means = [lead.mean for lead in leads.values()]
                below = [lead.mean - lead.low for lead in leads.values()]
                above = [lead.high - lead.mean for lead in leads.values()]
                places = [size * 1.06 ** (index - 1) for size in leads]  # Side by side.
                axes.errorbar(places, means, (below, above), capsize=2, label=label, **drawing.line_style(index))
            axes.axhline(0, color=drawing.GREY, linewidth=0.8)
            axes.set_xscale("log")
            axes.set_xticks([*sizes.values()], [f"{size:,.0f}" for size in sizes.values()])
            axes.minorticks_off()
            axes.set(title=textwrap.fill(f"minus {names.method(rival)}", 36))
        for bottom in all_axes[-1]:
            bottom.set_xlabel("parameters, million")
        drawn.supylabel("kNN Prompting's lead, points", fontsize="medium")
        _finish(drawn, path, columns=len(shown))


def _draw(
    panels: Mapping[str, Mapping[str, Mapping[float, float]]],
    x: str,
    path: pathlib.Path,
    baselines: Sequence[float] = (),
) -> None:
    """Draw mean accuracies: panels by title, lines by label, points by x; and the sentence encoder's in each panel."""
    with drawing.style():
        drawn = figure.Figure(figsize=(6.4, 3.8), layout="constrained", facecolor="white")
        all_axes = drawn.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, lines), baseline in itertools.zip_longest(all_axes, panels.items(), baselines):
            for index, (label, means) in enumerate(lines.items()):
                axes.plot(list(means), list(means.values()), **drawing.line_style(index), label=label)
            ticks = sorted({x for means in lines.values() for x, mean in means.items() if not math.isnan(mean)})
            axes.set_xscale("log")
            axes.set_xticks(ticks, ["" if value == UNLABELLED else f"{value:,.0f}" for value in ticks])
            if baseline is not None:
                axes.axhline(baseline, color=drawing.GREY, linestyle=":", label=names.method("encoder_probe"))
            axes.set(title=title, xlabel=x)
            axes.minorticks_off()
        all_axes[0].set_ylabel("mean accuracy, %")
        _finish(drawn, path, columns=2)


def _finish(drawn: figure.Figure, path: pathlib.Path, columns: int) -> None:
    """Put one legend below the panels, which keeps them readable on the width of a phone, and save the figure."""
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    drawn.savefig(path, dpi=130, metadata={"Software": None})


def main() -> None:
    """Write the pages and draw their figures."""
    loaded = load()
    for path, text in render(**loaded).items():
        path.write_text(text, encoding="utf-8")
    draw_by_size(loaded["matched"], FIGURES["by_size"])
    draw_by_rows(loaded["few_shot"], loaded["matched"], FIGURES["by_rows"])
    draw_worth(loaded["matched"], FIGURES["worth"])


if __name__ == "__main__":
    main()
