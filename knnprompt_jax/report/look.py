"""The page of a saved classifier's anchors; each anchor is classified by the others, so no further text is required."""

import itertools
import pathlib
import shlex
from collections.abc import Mapping

import numpy as np
import pandas as pd

from knnprompt_jax import distances, files, parallel, tables
from knnprompt_jax.classifier import saving
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.experts.pool import Choice
from knnprompt_jax.report import anchors as anchors_lib
from knnprompt_jax.report import drawing, maps, measures, page
from knnprompt_jax.report.anchors import ClassifiedAnchors
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.runs import corrections
from knnprompt_jax.settings import commands

_NEIGHBOURHOOD = 10  # Nearest anchors that cast doubt on a label; the vote has its own k.
_MAX_ROWS = 20  # Rows of the listing.
_MAX_POINTS = 1000  # Anchors on the map.


def run(settings: commands.LookSettings) -> str:
    """Write the page of a saved classifier and the table of labels that may be wrong; return what the binary prints.

    Raises:
        UserError: there is no saved classifier, it has too few anchors, or the output cannot be written.
    """
    page.check_libraries()
    output = page.folder(settings.output)
    saved = saving.read(pathlib.Path(settings.classifier))
    fitted = saved.restore(saved.load_model(parallel.make_mesh(0, settings.mesh_model)))
    anchors = classify_anchors(fitted)
    table = anchors_lib.suggestions(anchors)
    path = _write_suggestions(output, table)  # Before the page is drawn: a person may edit the table meanwhile.
    correct = f"fit again with --corrections={shlex.quote(str(path))}"
    advice = f"in {path.name}, clear “suggested” where “label” is right; then {correct}"
    with drawing.style():
        sections = build(anchors, table, advice)
    title = f"Anchors of {saved.path.resolve().name}"
    written = page.write(output, title, _introduction(fitted, anchors), sections)
    num_demonstrations = len(fitted.content.rows) - len(fitted.anchors)
    unchecked = f" (the {num_demonstrations} demonstrations are not listed)" if num_demonstrations else ""
    lines = [
        f"{len(table):,} of {len(anchors.texts):,} anchors may be mislabelled{unchecked}: {path}",
        f"page: {written}",
    ]
    if len(table):
        lines.append(f"next: in {path.name}, clear `suggested` where `label` is right; then {correct}")
    return "\n".join(lines)


def _write_suggestions(output: pathlib.Path, table: pd.DataFrame) -> pathlib.Path:
    """Write the table; return its path, which has a number if a person may have edited an earlier table."""
    rows = [table.columns, *table.itertuples(index=False)]
    content = tables.to_csv(rows).encode("utf-8", "backslashreplace")
    path = output / commands.SUGGESTIONS
    for number in itertools.count(2):
        if not path.exists() or path.read_bytes() == content:
            break
        path = output / f"{pathlib.Path(commands.SUGGESTIONS).stem}-{number}.csv"
    files.write(path, content)
    return path


def _introduction(fitted: Fitted, anchors: ClassifiedAnchors) -> str:
    """Return what was classified, and how well."""
    num_demonstrations = len(fitted.demonstrations)
    demonstrations = f"after {num_demonstrations}" if num_demonstrations else "without"
    return (
        f"{len(anchors.texts):,} anchors of task {fitted.task.name}, read by {fitted.model.name} "
        f"{demonstrations} demonstrations. {_expectation(fitted.content.choice, anchors)}"
    )


def _expectation(choice: Choice | None, anchors: ClassifiedAnchors) -> str:
    """Return the estimate for new texts that `fit` prints, or else how many anchors the others classify correctly."""
    if choice and choice.estimate and not choice.is_earlier:
        return f"Expect {choice.estimate.words} on new texts. Below, each anchor is classified by others."
    accuracy = 100 * np.mean(anchors.predicted_N == anchors.y_N)
    return f"Each anchor is classified by others: {accuracy:.1f} % are right."


def classify_anchors(fitted: Fitted) -> ClassifiedAnchors:
    """Return a fitted classifier's anchors and their neighbours; raise UserError as `Fitted.left_out`."""
    predicted_N, shares_NC = fitted.left_out()
    task = fitted.task
    examples = fitted.anchors
    kept = set(examples)
    nearest = fitted.search_among_anchors(min(max(fitted.content.k, _NEIGHBOURHOOD), len(examples) - 1))
    return ClassifiedAnchors(
        labels=task.titles,
        names=task.labels,
        ids=tuple(example.row for example in examples),
        user_ids=tuple(example.ids for example in examples),
        texts=tuple(task.retrieval_text(example) for example in examples),
        demonstrations=tuple(
            (row.row, task.retrieval_text(row), row.label) for row in fitted.demonstrations if row not in kept
        ),
        y_N=fitted.content.y_N,
        near_Nk=np.asarray(nearest.indices_Qk),
        distances_Nk=np.asarray(nearest.distances_Qk),
        predicted_N=predicted_N,
        shares_NC=shares_NC,
        hidden_NE=np.asarray(fitted.states.hidden_NE, np.float32),
        unit=distances.get(fitted.content.distance).unit,
        has_probabilities=not fitted.content.is_published,
    )


def build(anchors: ClassifiedAnchors, table: pd.DataFrame, advice: str) -> list[Section]:
    """Return the page's sections; `table` has the suggestions, and `advice` says how to correct labels."""
    suspects = f"Anchors whose label others contradict. To correct them: {advice}"
    similar = "Similar anchors lie together. Check an anchor that lies among anchors of another label."
    titles = dict(zip(anchors.names, anchors.labels, strict=True))
    return [
        Section("suspects", "Probably mislabelled", suspects, listings=(_listing(table, titles),)),
        Section("map", "Map", similar, maps=(_map(anchors),)),
        measures.confusion(anchors.measured, anchors.labels, "anchors"),
        measures.calibration(anchors.measured, "anchors"),
    ]


def _map(anchors: ClassifiedAnchors) -> maps.Map:
    """Return a map of at most `_MAX_POINTS` anchors, drawn at random; neighbours that were not drawn are left out."""
    count = len(anchors.texts)
    drawn = np.sort(np.random.default_rng(0).permutation(count)[:_MAX_POINTS])
    index_on_map = {anchor: index for index, anchor in enumerate(drawn.tolist())}
    points = []
    for anchor in index_on_map:
        near = zip(anchors.near_Nk[anchor].tolist(), anchors.distances_Nk[anchor].tolist(), strict=True)
        kept = tuple((index_on_map[other], distance) for other, distance in near if other in index_on_map)
        true = anchors.labels[anchors.y_N[anchor]]
        predicted = anchors.labels[anchors.predicted_N[anchor]]
        points.append(maps.Point(anchors.texts[anchor], true, predicted, neighbours=kept))
    share = "" if len(drawn) == count else f"{len(drawn):,} of {count:,} anchors, drawn at random: "
    return maps.Map(
        title="",
        caption=f"{share}t-SNE of hidden states; shapes and colours are labels. Hollow: the other anchors predict "
        "another label.",
        labels=anchors.labels,
        points=tuple(points),
        positions_N2=maps.layout(anchors.hidden_NE[drawn]),
        unit=anchors.unit,
        row="anchor",
    )


def _listing(table: pd.DataFrame, titles: Mapping[str, str]) -> Listing:
    """Return the first rows of the table of suggestions, with the classes' titles, as in the other sections."""
    rows = []
    for row in table.head(_MAX_ROWS).itertuples(index=False):
        cells = dict(zip(table.columns, (tables.from_cell(str(cell)) for cell in row), strict=True))
        for column in {corrections.LABEL, corrections.SUGGESTED} & cells.keys():
            cells[column] = titles.get(cells[column], cells[column])
        rows.append(tuple(cells.values()))
    is_cut = len(table) > _MAX_ROWS
    caption = f"The first {_MAX_ROWS} of {len(table):,} rows of the table." if is_cut else "The rows of the table."
    why = (
        "Order: by the suggestion's lead over the present label. Why: the nearest anchors with the suggested label, or "
        "its probability."
    )
    return Listing(f"{caption} {why}", tuple(table.columns), tuple(rows))
