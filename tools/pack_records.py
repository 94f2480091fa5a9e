"""Pack records into docs/records/NAME.jsonl.gz: those of folders with their subfolders, and of packed files.

python tools/pack_records.py NAME SOURCE...

Of records of the same experiment and file name, that of the last source is kept.
"""

import itertools
import pathlib
import sys
from collections.abc import Iterable

from knnprompt_jax import errors
from knnprompt_jax.runs import records

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
    records.pack(path, found.values())
    return len(found)


if __name__ == "__main__":
    name, *sources = sys.argv[1:]
    path = FOLDER / f"{name}{records.PACKED}"
    FOLDER.mkdir(exist_ok=True)
    print(f"{path}: {pack(map(pathlib.Path, sources), path)} records, {path.stat().st_size:,} bytes")
