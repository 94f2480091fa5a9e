"""Pack the records of a folder and of its subfolders into docs/records/NAME.jsonl.gz.

python tools/pack_records.py RESULTS_FOLDER NAME
"""

import pathlib
import sys

from knnprompt_jax import errors
from knnprompt_jax.runs import records

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "records"


def pack(results: pathlib.Path, path: pathlib.Path) -> int:
    """Pack the records into the file and return their number; raise UserError if there are none."""
    folders = sorted({file.parent for file in results.rglob("*.json")})
    found = [record for folder in folders for record in records.read_all(folder)]
    if not found:
        raise errors.UserError(f"{results}: no records")
    records.pack(path, found)
    return len(found)


if __name__ == "__main__":
    folder, name = sys.argv[1:]
    path = FOLDER / f"{name}{records.PACKED}"
    FOLDER.mkdir(exist_ok=True)
    print(f"{path}: {pack(pathlib.Path(folder), path)} records, {path.stat().st_size:,} bytes")
