"""Draw docs/search_growth.png: the time per query of a search against the number of anchors.

python -m tools.benchmark_search --model=gpt2 --stored=1024,4096,16384,65536,1048576 --max_store_gb=3.25
python tools/draw_growth.py benchmarks/search-DATE.json
"""

import json
import pathlib
import sys

from matplotlib import figure

from knnprompt_jax.report import drawing

PATH = pathlib.Path(__file__).parents[1] / "docs" / "search_growth.png"


def draw(record: pathlib.Path, path: pathlib.Path = PATH) -> None:
    """Plot a benchmark's searches beside the bound: one line per kind of store and number of queries."""
    rows = json.loads(record.read_text(encoding="utf-8"))["queries_per_second"]
    with drawing.style():
        drawn = figure.Figure(figsize=(6.4, 4.6), layout="constrained", facecolor="white")
        axes = drawn.add_subplot()
        for index, (kind, queries) in enumerate(dict.fromkeys((row["store"], row["queries"]) for row in rows)):
            line = [row for row in rows if (row["store"], row["queries"]) == (kind, queries)]
            anchors = [row["anchors"] for row in line]
            milliseconds = [1000 / row["from_keys"] for row in line]
            bound = [time * row["share_of_bound"] for time, row in zip(milliseconds, line, strict=True)]
            noun = "query" if queries == 1 else "queries together"
            axes.plot(anchors, milliseconds, **drawing.line_style(index), label=f"{kind}, {queries} {noun}")
            axes.plot(anchors, bound, color=drawing.GREY, linewidth=0.8, label="" if index else "bound")
        axes.set(xscale="log", yscale="log", xlabel="anchors", ylabel="milliseconds per query")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:g}")
        drawn.legend(loc="outside lower center", ncols=2)
        drawn.savefig(path, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]))
