"""Pack records into docs/records/NAME.jsonl.gz: those of folders with their subfolders, and of packed files.

python tools/pack_records.py NAME SOURCE...

Of records of the same experiment and file name, that of the last source is kept.
"""

import dataclasses
import gzip
import itertools
import json
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

from knnprompt_jax.common import errors, files
from knnprompt_jax.report import records

_MACHINE_FIELDS = {"environment", "seconds", "prompts_per_second"}
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "records"


def pack(sources: Iterable[pathlib.Path], path: pathlib.Path) -> int:
    """Pack the records into the file and return their number; raise UserError if there are none."""
    found = {}
    for source in sources:
        folders = sorted({file.parent for file in source.rglob("*.json")}) if source.is_dir() else [source]
        for record in itertools.chain.from_iterable(map(records.read_all, folders)):
            found[record.experiment, record.file_name] = record
    if not found:
        raise errors.UserError("no records to pack")
    write(path, found.values())
    return len(found)


def write(path: pathlib.Path, written: Iterable[records.Record]) -> None:
    """Write records to one compressed file, sorted.

    Labels become class indices, in the order of `class_counts`. Times, devices and paths are left out.
    """
    contents = []
    for record in sorted(written, key=lambda record: (record.experiment, record.file_name)):
        content = {**dataclasses.asdict(record), "macro_f1": record.macro_f1}
        numbers = {label: number for number, label in enumerate(record.class_counts)}
        content |= {name: [numbers[label] for label in content[name]] for name in ("predicted", "true")}
        kept = {name: value for name, value in content.items() if name not in _MACHINE_FIELDS}
        contents.append(_without_folders(kept))
    write_lines(path, contents)


def write_lines(path: pathlib.Path, contents: Iterable[Any]) -> None:
    """Write a JSON line for each of the contents to one compressed file; the same contents give the same bytes."""
    lines = (json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n" for content in contents)
    files.write(path, gzip.compress("".join(lines).encode(), mtime=0))


def _without_folders(value: Any) -> Any:
    """Return a JSON value whose absolute paths are cut to their last two parts."""
    if isinstance(value, dict):
        return {name: _without_folders(item) for name, item in value.items()}
    if isinstance(value, str) and (path := pathlib.PurePath(value)).is_absolute():
        return "/".join(path.parts[1:][-2:])
    return value


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    name, *sources = sys.argv[1:]
    path = FOLDER / f"{name}{records.PACKED}"
    FOLDER.mkdir(exist_ok=True)
    print(f"{path}: {pack(map(pathlib.Path, sources), path)} records, {path.stat().st_size:,} bytes")
