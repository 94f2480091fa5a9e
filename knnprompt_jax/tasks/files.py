"""Raw rows of a split in the published layout, a folder of JSONL files."""

from importlib.resources.abc import Traversable

from knnprompt_jax import errors
from knnprompt_jax.tasks import formats
from knnprompt_jax.tasks.formats import Row

_FILE_NAMES = {"train": ("train.jsonl", "train_subset.jsonl")}


def read_split(folder: Traversable, split: str, restore_dropped: bool) -> list[Row]:
    """The rows of `<split>.jsonl` in a folder; `train_subset.jsonl`, DBPedia's published name, also serves for train.

    With `restore_dropped`, the rows of `<split>_dropped.jsonl`, where there is one, are put back at the line numbers
    (0-based, of the file they were taken from) that their key `line` gives.
    """
    rows = list(formats.read(_find(folder, split)))
    dropped = folder / f"{split}_dropped.jsonl"
    return _restored(rows, list(formats.read(dropped))) if restore_dropped and dropped.is_file() else rows


def _find(folder: Traversable, split: str) -> Traversable:
    names = _FILE_NAMES.get(split, (f"{split}.jsonl",))
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise errors.UserError(f"{folder / names[0]}: no such file; the folder holds {content(folder)}")


def content(folder: Traversable) -> str:
    """What a folder holds, for a message."""
    return ", ".join(sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else ()) or "nothing"


def _restored(rows: list[Row], dropped: list[Row]) -> list[Row]:
    restored = list(rows)
    for place, row in dropped:
        if not isinstance(row.get("line"), int):
            raise errors.UserError(f"{place}: lacks 'line', the 0-based line number the row was taken from")
    for place, row in sorted(dropped, key=lambda pair: pair[1]["line"]):
        line, size = row["line"], len(restored)
        if not 0 <= line <= size:
            raise errors.UserError(f"{place}: line {line} is outside the file it should go back to ({size} rows)")
        restored.insert(line, (place, {key: value for key, value in row.items() if key != "line"}))
    return restored
