"""The page of a saved classifier's anchors, each classified by the others, and the table to edit for the next fit."""

import itertools
import pathlib
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import label_table
from knnprompt_jax.commands.anchors import ClassifiedAnchors
from knnprompt_jax.commands.label_table import ToLabel
from knnprompt_jax.common import files, parallel, progress
from knnprompt_jax.datastore import distances
from knnprompt_jax.report import drawing, maps, measures, page
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.tasks import columns

_NEIGHBOURHOOD = 10  # Nearest anchors that cast doubt on a label; the vote has its own k.
_MAX_ROWS = 20  # Rows of a listing.
_MAX_POINTS = 1000  # Anchors on the map.
_NEXT = (
    "next: where a label is wrong, write the right one into `suggested`; where it is right, write x into `checked`; label the "
    "rows to label; then fit with --train_file={}"
)


def run(settings: commands.LookSettings) -> str:
    """Write the page of a saved classifier and the table to edit; return what is printed.

    Raises:
        UserError: there is no saved classifier, it has too few anchors, the unlabelled rows cannot be read, or the
            output cannot be written.
    """
    page.check_libraries()
    output = pathlib.Path(settings.output)
    saved = classifier_file.read(pathlib.Path(settings.classifier))
    rows = label_table.train_rows(saved.content)
    progress.note(f"classifying the rows of {saved.path} by each other, with {saved.content.model.name}")
    fitted = saved.restore(saved.load_model(parallel.make_mesh(0, settings.mesh.model)))
    anchors = classify_anchors(fitted)
    doubts = label_table.mark_doubts(fitted.content, anchors, rows)
    table = [*rows.values()]
    chosen = None
    if settings.input:
        chosen = label_table.choose(fitted, table, settings, anchors.near_Nk.shape[1])
        table += chosen.rows
    # The table is written before the page is drawn: a person may edit it meanwhile.
    path = _write_new(output / commands.TABLE, label_table.write(table))
    progress.note("drawing the page")
    suspects = [
        (anchors.texts[index], anchors.label(index), row[columns.PROBABILITY], row[columns.REASON])
        for index in doubts
        for row in [rows[anchors.ids[index]]]
    ]
    with drawing.style():
        sections = build(anchors, suspects, chosen)
    demonstrations = f"after {len(fitted.demonstrations)}" if fitted.demonstrations else "without"
    introduction = (
        f"{len(anchors.texts):,} anchors of task {fitted.task.name}, read by {fitted.model.name} {demonstrations} "
        f"demonstrations. {100 * np.mean(anchors.predicted_N == anchors.y_N):.1f} % of them are classified correctly by "
        "the others."
    )
    written = page.write(output, f"Anchors of {saved.path.resolve().name}", introduction, sections)
    lines = [f"labels to check: {len(doubts):,} of {len(anchors.texts):,}"]
    if chosen:
        lines.append(f"rows to label: {len(chosen.rows):,}, at the end of the table")
    return "\n".join([*lines, f"table: {path}", f"page: {written}", _NEXT.format(path)])


def _write_new(path: pathlib.Path, content: bytes) -> pathlib.Path:
    """Write a table, under the next free name if a person may have edited an earlier table; return its path."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    names = itertools.chain([path], numbered)
    path = next(name for name in names if not name.exists() or name.read_bytes() == content)
    files.write(path, content)
    return path


def classify_anchors(fitted: Fitted) -> ClassifiedAnchors:
    """Return a fitted classifier's anchors and their neighbours; raise UserError as `Fitted.left_out`."""
    predicted_N, shares_NC = fitted.left_out()
    task = fitted.task
    examples = fitted.anchors
    nearest = fitted.search_among_anchors(min(max(fitted.content.k, _NEIGHBOURHOOD), len(examples) - 1))
    return ClassifiedAnchors(
        labels=task.titles,
        names=task.labels,
        ids=tuple(example.row for example in examples),
        texts=tuple(task.retrieval_text(example) for example in examples),
        y_N=fitted.content.y_N,
        near_Nk=np.asarray(nearest.indices_Qk),
        distances_Nk=np.asarray(nearest.distances_Qk),
        predicted_N=predicted_N,
        shares_NC=shares_NC,
        hidden_NE=np.asarray(fitted.states.hidden_NE, np.float32),
        unit=distances.get(fitted.content.vote.distance).unit,
    )


def build(
    anchors: ClassifiedAnchors, suspects: Sequence[tuple[str, ...]], chosen: ToLabel | None = None
) -> list[Section]:
    """Return the page's sections.

    Args:
        suspects: the text, the label, its probability and the reason of each label to check.
        chosen: the rows to label.
    """
    to_check = (
        "The least probable labels, then labels of texts that have several. The probability of a label is raised if its "
        f"class is rare. In {commands.TABLE}, write the right label into “{columns.SUGGESTED}”, or x into “{columns.CHECKED}”."
    )
    similar = "Similar texts lie together. Check an anchor that lies among anchors of another label."
    sections = [
        _listing("suspects", "Labels to check", to_check, ("text", "label", "probability", "reason"), suspects),
        Section("map", "Map", similar, maps=(_map(anchors, chosen),)),
        measures.confusion(anchors.measured, anchors.labels, "anchors"),
        measures.calibration(anchors.measured, "anchors"),
    ]
    if not chosen:
        return sections
    text = (
        f"The rows whose labels would teach the classifier most, in this order, are the last ones of {commands.TABLE}."
    )
    headers = ("text", columns.PROBABILITY, columns.NOVELTY, columns.REASON)
    rows = [
        (row_text, *(row[name] for name in headers[1:]))
        for row_text, row in zip(chosen.texts, chosen.rows, strict=True)
    ]
    return [_listing("to_label", "What to label next", text, headers, rows), *sections]


def _listing(name: str, title: str, text: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Section:
    """Return a section that lists the first rows."""
    caption = f"The first {_MAX_ROWS} of {len(rows):,} rows." if len(rows) > _MAX_ROWS else ""
    return Section(name, title, text, listings=(Listing(caption, headers, tuple(rows[:_MAX_ROWS])),))


def _map(anchors: ClassifiedAnchors, chosen: ToLabel | None) -> maps.Map:
    """Return a map of at most `_MAX_POINTS` anchors, drawn at random, and of the rows to label.

    Neighbours that were not drawn are left out.
    """
    count = len(anchors.texts)
    drawn = np.sort(np.random.default_rng(0).permutation(count)[:_MAX_POINTS])
    index_on_map = {anchor: index for index, anchor in enumerate(drawn.tolist())}

    def neighbours(near_k: np.ndarray, distances_k: np.ndarray) -> tuple[tuple[int, float], ...]:
        near = zip(near_k.tolist(), distances_k.tolist(), strict=True)
        return tuple((index_on_map[other], distance) for other, distance in near if other in index_on_map)

    points = []
    for anchor in index_on_map:
        near = neighbours(anchors.near_Nk[anchor], anchors.distances_Nk[anchor])
        true = anchors.labels[anchors.y_N[anchor]]
        predicted = anchors.labels[anchors.predicted_N[anchor]]
        points.append(maps.Point(anchors.texts[anchor], true, predicted, neighbours=near))
    states = [anchors.hidden_NE[drawn]]
    if chosen:
        titles = dict(zip(anchors.names, anchors.labels, strict=True))
        arrays = np.asarray(chosen.near.indices_Qk), np.asarray(chosen.near.distances_Qk)
        for text, predicted, near_k, distances_k in zip(chosen.texts, chosen.predicted, *arrays, strict=True):
            points.append(maps.Point(text, "", titles[predicted], neighbours=neighbours(near_k, distances_k)))
        states.append(chosen.hidden_QE)
    share = "" if len(drawn) == count else f"{len(drawn):,} of {count:,} anchors, drawn at random: "
    return maps.Map(
        title="",
        caption=f"{share}t-SNE of hidden states; shapes and colours are labels. Hollow: the other anchors predict "
        "another label.",
        labels=anchors.labels,
        points=tuple(points),
        positions_N2=maps.layout(np.concatenate(states)),
        unit=anchors.unit,
        row="anchor",
    )
