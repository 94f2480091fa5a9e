"""Reproduce one table of the paper: kNN Prompting by KL divergence beside L2 distance of hidden states, as a bar chart.

python examples/reproduce_a_table.py                                      # SmolLM2 on the demo task
python examples/reproduce_a_table.py --data_dir=data --tasks=sst2,trec    # the paper's tasks, beside its numbers
"""

import argparse
import dataclasses
import pathlib

from matplotlib import pyplot as plt

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.report import results, tables
from knnprompt_jax.study import paper_grid, paper_tables

TABLE = "distance"  # The name of a file in configs/.


def main(**values: object) -> pathlib.Path:
    """Run the missing runs of the table, print the table, and return the path of the chart."""
    # 1. Start from the paper's settings and replace the given values.
    settings = dataclasses.replace(grids.shipped(TABLE), **values)

    # 2. Run: all methods share one pass over the prompts, and finished runs are not repeated.
    paper_grid.run(settings)

    # 3. Print our numbers beside the paper's, where it has the same task and model.
    folder = pathlib.Path(settings.output) / TABLE
    experiment = paper_tables.of(settings)
    records = experiment.read(folder)
    for table in experiment.section(records, folder).tables:
        print(tables.to_text(table))

    # 4. Draw a bar per task and method, with the standard deviation over seeds.
    frame = results.frame(records)
    means = frame.pivot_table("accuracy", "task", "method", "mean")
    spreads = frame.pivot_table("accuracy", "task", "method", "std")
    axes = means.plot.bar(yerr=spreads, rot=0, figsize=(2 + 1.5 * len(means), 3.5), capsize=3)
    axes.set(ylabel="accuracy, %", ylim=(0, 100), title=f"{frame.model.iloc[0]}, m = {frame.m.max()}")
    axes.figure.savefig(folder / "chart.png", dpi=110, bbox_inches="tight")
    plt.close(axes.figure)
    return folder / "chart.png"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2")
    parser.add_argument("--tasks", default="demo")
    parser.add_argument("--data_dir", default="")
    parser.add_argument("--output", default="results")
    print(main(seeds="1,2,3", **vars(parser.parse_args())))
