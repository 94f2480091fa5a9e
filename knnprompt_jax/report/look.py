"""The page of a saved classifier's anchors; each anchor is classified by the others, so no further text is required."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from knnprompt_jax import characters, distances, files, parallel, progress, tables
from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.experts.pool import Choice
from knnprompt_jax.report import anchors as anchors_lib
from knnprompt_jax.report import drawing, maps, measures, page, to_label
from knnprompt_jax.report.anchors import ClassifiedAnchors
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.report.to_label import ToLabel
from knnprompt_jax.runs import corrections, refitting
from knnprompt_jax.settings import commands

_NEIGHBOURHOOD = 10  # Nearest anchors that cast doubt on a label; the vote has its own k.
_MIN_SUGGESTIONS = 10  # Labels to check, by default a tenth of the rows.
_MAX_SUGGESTIONS = 50
_MAX_ROWS = 20  # Rows of a listing.
_MAX_POINTS = 1000  # Anchors on the map.


def run(settings: commands.LookSettings) -> str:
    """Write the page of a saved classifier and the tables of rows to check and to label; return what is printed.

    Raises:
        UserError: there is no saved classifier, it has too few anchors, the unlabelled rows cannot be read, or the
            output cannot be written, or another process writes to it.
    """
    page.check_libraries()
    with page.folder(settings.output) as output:
        return _run(settings, output)


def _run(settings: commands.LookSettings, output: pathlib.Path) -> str:
    saved = classifier_file.read(pathlib.Path(settings.classifier))
    progress.note(f"classifying the rows of {saved.path} by each other, with {saved.content.model.name}")
    fitted = saved.restore(saved.load_model(parallel.make_mesh(0, settings.mesh.model)))
    anchors = classify_anchors(fitted)
    chosen = to_label.choose(fitted, settings, anchors.near_Nk.shape[1]) if settings.input else None
    # The tables are written before the page is drawn: a person may edit them meanwhile.
    count = _default_count(len(anchors.texts)) if settings.suggestions is None else settings.suggestions
    table = anchors_lib.suggestions(anchors, count)
    lines = _write_suggestions(output, anchors, table, saved)
    if chosen:
        lines += _write_to_label(output, chosen, saved)
    progress.note("drawing the page")
    with drawing.style():
        sections = build(anchors, table, chosen)
    title = f"Anchors of {saved.path.resolve().name}"
    written = page.write(output, title, _introduction(fitted, anchors), sections)
    return "\n".join([*lines, f"page: {written}"])


def _default_count(num_rows: int) -> int:
    """Return the number of labels to check where none is given."""
    return min(_MAX_SUGGESTIONS, max(_MIN_SUGGESTIONS, num_rows // 10))


def _write_suggestions(
    output: pathlib.Path, anchors: ClassifiedAnchors, table: pd.DataFrame, saved: classifier_file.Saved
) -> list[str]:
    """Write the table of labels to check; return what to print about it."""
    content = tables.to_csv([table.columns, *table.itertuples(index=False)]).encode("utf-8", "backslashreplace")
    paths = _write_new(output, commands.SUGGESTIONS, content)
    num_suggested = int((table[corrections.SUGGESTED] != "").sum())
    others = f"; {len(anchors.demonstrations):,} demonstrations are not compared" if anchors.demonstrations else ""
    lines = [
        f"labels to check: {len(table):,} of {len(anchors.texts):,}, {num_suggested:,} with another label suggested"
        f"{others}: {paths[-1]}"
    ]
    if anchors.checked:
        lines.append(f"labels checked earlier, not listed: {len(anchors.checked):,}")
    if len(table):
        lines += [
            f"next: in {paths[-1].name}, write x into `{corrections.CHECKED}` where `{corrections.LABEL}` is right; every "
            f"label left in `{corrections.SUGGESTED}` is applied: empty or correct those that you do not accept",
            *_advise_to_refit(saved, corrected=paths),
        ]
    return lines


def _write_to_label(output: pathlib.Path, chosen: ToLabel, saved: classifier_file.Saved) -> list[str]:
    """Write the table of rows to label; return what to print about it."""
    paths = _write_new(output, commands.TO_LABEL, to_label.to_csv(chosen, saved.content.task))
    return [
        *chosen.notes,
        f"rows to label: {len(chosen.examples):,}: {paths[-1]}",
        f"next: fill in its column `{chosen.label_column}`",
        *_advise_to_refit(saved, further=paths),
    ]


def _advise_to_refit(
    saved: classifier_file.Saved, further: Sequence[pathlib.Path] = (), corrected: Sequence[pathlib.Path] = ()
) -> list[str]:
    """Return how to fit the classifier again, with `further` train files or corrected labels."""
    train_files = tuple(map(str, further))
    files_of_labels = tuple(map(str, corrected))
    command = refitting.command(saved.content, str(saved.path), train_files, files_of_labels)
    if command:
        return [
            f"then fit again, with your train file in place of {refitting.TRAIN_FILE} and with --shots, --on_bad and "
            "--drop_duplicates as before:",
            command,
        ]
    flag = "--corrections" if corrected else "--train_file"
    names = files_of_labels or (refitting.TRAIN_FILE, *train_files)
    return [f"then fit again with {flag}={characters.shell_word(','.join(names))}"]


def _write_new(output: pathlib.Path, name: str, content: bytes) -> list[pathlib.Path]:
    """Write a table under a name that is free; return the paths of earlier tables and, last, its own.

    A person may have edited an earlier table, so that one stays, and the new one has the next number.
    """
    plain = pathlib.Path(name)
    paths = [output / plain]
    while paths[-1].exists() and paths[-1].read_bytes() != content:
        paths.append(output / f"{plain.stem}-{len(paths) + 1}{plain.suffix}")
    files.write(paths[-1], content)
    return paths


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
        unit=distances.get(fitted.content.vote.distance).unit,
        checked=fitted.content.checked,
    )


def build(anchors: ClassifiedAnchors, table: pd.DataFrame, chosen: ToLabel | None = None) -> list[Section]:
    """Return the page's sections; `table` has the labels to check, and `chosen` the rows to label."""
    suspects = (
        f"The least probable labels. To correct them, edit {commands.SUGGESTIONS}: write x into “{corrections.CHECKED}” "
        f"where “{corrections.LABEL}” is right, and empty or correct “{corrections.SUGGESTED}” elsewhere; then give the file to "
        "fit with --corrections, which applies every label left in that column."
    )
    similar = "Similar texts lie together. Check an anchor that lies among anchors of another label."
    titles = dict(zip(anchors.names, anchors.labels, strict=True))
    sections = [
        Section("suspects", "Labels to check", suspects, listings=(_listing(table, titles),)),
        Section("map", "Map", similar, maps=(_map(anchors, chosen),)),
        measures.confusion(anchors.measured, anchors.labels, "anchors"),
        measures.calibration(anchors.measured, "anchors"),
    ]
    return [_to_label_section(chosen, titles), *sections] if chosen else sections


def _to_label_section(chosen: ToLabel, titles: Mapping[str, str]) -> Section:
    text = (
        f"Rows whose labels would teach the classifier most, in this order. Fill in the column “{chosen.label_column}” of "
        f"{commands.TO_LABEL}; then fit again with this file after the train file."
    )
    rows = tuple(itertools.islice(to_label.listed(chosen, titles), _MAX_ROWS))
    listing = Listing(_cut(len(chosen.examples)), to_label.HEADERS, rows)
    return Section("to_label", "What to label next", text, listings=(listing,))


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


def _listing(table: pd.DataFrame, titles: Mapping[str, str]) -> Listing:
    """Return the first rows of the table of labels to check, with the classes' titles, as in the other sections."""
    rows = []
    for row in table.head(_MAX_ROWS).drop(columns=corrections.CHECKED).to_dict("records"):
        cells = {str(column): tables.from_cell(str(cell)) for column, cell in row.items()}
        for column in (corrections.LABEL, corrections.SUGGESTED):
            cells[column] = titles.get(cells[column], cells[column])
        rows.append(cells)
    why = (
        "Order: by the label's probability, as if classes were more equally common. Neighbours: how many of the nearest "
        "anchors have another label. Same text: anchors that have this text and another label."
    )
    headers = tuple(str(column) for column in table.columns if column != corrections.CHECKED)
    return Listing(f"{_cut(len(table))} {why}", headers, tuple(tuple(row.values()) for row in rows))


def _cut(count: int) -> str:
    """Return how many rows of a table the page lists."""
    return f"The first {_MAX_ROWS} of {count:,} rows of the table." if count > _MAX_ROWS else "The rows of the table."
