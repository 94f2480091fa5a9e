"""Where predictions go: a file that appears when it is whole and can be gone on with, or standard output."""

import dataclasses
import json
import os
import pathlib
import sys
from typing import Any

from knnprompt_jax import errors, files
from knnprompt_jax.prediction import rows

STANDARD = "-"


class StandardOutput:
    """Standard output; a reader that has enough ends the run."""

    mark = rows.Mark()
    reads: tuple[int, ...] = ()

    def write(self, content: bytes, mark: rows.Mark, reads: tuple[int, ...]) -> bool:
        """Writes; False where nobody reads any more."""
        del mark, reads
        try:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # Python flushes once more at the end, and would tell of the same error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return False
        return True

    def finish(self) -> None:
        """Nothing is left to do."""


class FileOutput:
    """A file beside which `.<name>.writing` grows and `.<name>.progress` says how much of it counts.

    Attributes:
      mark: the rows that earlier runs have labelled.
      reads: as in the latest batch of these.
    """

    def __init__(self, path: pathlib.Path, plan: dict[str, Any]):
        """`plan` is what the predictions depend on beside the rows.

        Raises:
          UserError: the file exists already, or an unfinished run wrote it with another plan.
        """
        self.path, self.plan = path, plan
        self.mark, self.num_bytes = rows.Mark(), 0
        self.reads: tuple[int, ...] = ()
        self._draft, self._progress = files.draft(path), path.with_name(f".{path.name}.progress")
        if path.exists():
            raise errors.UserError(f"{path}: exists already; choose another file, or remove it")
        if not os.access(path.absolute().parent, os.W_OK):
            raise errors.UserError(f"{path}: there is no folder {path.parent} that can be written to")
        if self._progress.exists():
            self._go_on()
        else:
            self._draft.unlink(missing_ok=True)

    def write(self, content: bytes, mark: rows.Mark, reads: tuple[int, ...]) -> bool:
        """Appends the predictions of a batch, so that they and the note of them survive."""
        with self._draft.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.num_bytes += len(content)
        self.mark, self.reads = mark, reads
        note = {"plan": self.plan, **dataclasses.asdict(mark), "reads": reads, "bytes": self.num_bytes}
        with files.new_file(self._progress) as draft:
            draft.write_text(json.dumps(note), encoding="utf-8")
        return True

    def finish(self) -> None:
        """Puts the whole file in its place."""
        self._draft.touch()  # There may have been no rows.
        self._draft.replace(self.path)
        self._progress.unlink(missing_ok=True)

    def _go_on(self) -> None:
        try:
            note = json.loads(self._progress.read_text(encoding="utf-8"))
            earlier, self.mark = note["plan"], rows.Mark(note["rows"], note["checksum"])
            self.reads, self.num_bytes = tuple(note["reads"]), note["bytes"]
            size = self._draft.stat().st_size
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise errors.UserError(f"{self._progress}: damaged: {error}; remove it to start anew") from None
        if other := [name for name, value in self.plan.items() if earlier.get(name) != value]:
            raise errors.UserError(
                f"{self.path}: an unfinished run differs in {', '.join(other)}: choose another file, or remove {self._progress}"
            )
        if size < self.num_bytes:
            raise errors.UserError(
                f"{self._draft}: has {size} bytes, and {self.num_bytes} were written: remove {self._progress} to start anew"
            )
        os.truncate(self._draft, self.num_bytes)


Output = StandardOutput | FileOutput
