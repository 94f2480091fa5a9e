"""Outputs of predictions: a file that appears when it is complete and can be resumed, or standard output."""

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from knnprompt_jax import errors, files
from knnprompt_jax.prediction import rows

STANDARD = "-"


class StandardOutput:
    """Standard output. A reader that closes it ends the run."""

    mark = rows.Mark()
    kept: tuple[str, ...] = ()

    def write(self, content: bytes, mark: rows.Mark) -> bool:
        """Write a batch; return False if nobody reads any more."""
        del mark
        try:
            with files.refusals(pathlib.Path("standard output")):
                sys.stdout.buffer.write(content)
                sys.stdout.buffer.flush()
        except errors.UserError as error:
            # Python flushes once more at the end, and would report the same error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error.__cause__, BrokenPipeError):
                raise
            return False
        return True

    def finish(self) -> None:
        """Do nothing: all batches are written."""


class FileOutput:
    """A file. While it is written, `.<name>.writing` grows, and `.<name>.progress` records how much of it is finished.

    Attributes:
      mark: the rows that earlier runs have labelled.
      kept: the columns of the input that are copied; set with the first batch.
    """

    def __init__(self, path: pathlib.Path, plan: dict[str, Any], overwrite: bool = False):
        """Begin or resume the file at `path`, which the caller has locked.

        Args:
          plan: everything that the predictions depend on, except the rows.
          overwrite: replace an earlier file once the new one is complete, and drop what a run with another plan began.

        Raises:
          UserError: the file exists already, or an unfinished run had another plan or was damaged.
        """
        self.path, self.plan = path, plan
        self.mark, self.kept, self._num_bytes = rows.Mark(), (), 0
        self._draft = files.draft(path)
        self._progress = self._draft.with_suffix(".progress")
        with files.refusals(path):
            if path.exists():
                if not self._draft.exists():  # The process died when everything was finished.
                    self._progress.unlink(missing_ok=True)
                if not overwrite:
                    raise errors.UserError(f"{path}: exists already; choose another file, or --overwrite it")
            if self._progress.exists():
                self._resume(overwrite)
            else:
                self._draft.unlink(missing_ok=True)

    def write(self, content: bytes, mark: rows.Mark) -> bool:
        """Append the predictions of a batch, durably, and record them as finished."""
        with files.refusals(self.path), self._draft.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.mark, self._num_bytes = mark, self._num_bytes + len(content)
        note = {"plan": self.plan, **dataclasses.asdict(mark), "bytes": self._num_bytes, "kept": self.kept}
        with files.new_file(self._progress) as draft:
            draft.write_text(json.dumps(note), encoding="utf-8")
        return True

    def start_anew(self) -> None:
        """Drop what earlier runs have labelled."""
        with files.refusals(self.path):
            self._progress.unlink()
            self._draft.unlink(missing_ok=True)
        self.mark, self.kept, self._num_bytes = rows.Mark(), (), 0

    def finish(self) -> None:
        """Put the complete file in its place."""
        with files.refusals(self.path):
            self._draft.touch()  # There may have been no rows.
            files.finish_file(self.path)
            self._progress.unlink(missing_ok=True)

    def _resume(self, overwrite: bool) -> None:
        try:
            note = json.loads(self._progress.read_text(encoding="utf-8"))
            plan, mark = note["plan"], rows.Mark(note["rows"], note["checksum"])
            kept, num_bytes = tuple(note["kept"]), int(note["bytes"])
            size = self._draft.stat().st_size if self._draft.exists() else 0
            if size < num_bytes:
                raise ValueError(f"{size} of {num_bytes} bytes")
        except (ValueError, TypeError, KeyError, RecursionError):
            raise errors.UserError(
                f"{self.path}: an unfinished run is damaged: remove {self._draft} and {self._progress} to start anew"
            ) from None
        if differing := [name for name, value in self.plan.items() if plan.get(name) != value]:
            if overwrite:
                self.start_anew()
                return
            raise errors.UserError(
                f"{self.path}: an unfinished run differs in {', '.join(differing)}: choose another file, or --overwrite it"
            )
        self.mark, self.kept, self._num_bytes = mark, kept, num_bytes
        if self._draft.exists():
            os.truncate(self._draft, num_bytes)


Output = StandardOutput | FileOutput


@contextlib.contextmanager
def to_file(path: pathlib.Path, plan: dict[str, Any], overwrite: bool = False) -> Iterator[FileOutput]:
    """Lock and return the output at `path`; raise UserError if another process writes to it, or it cannot be written."""
    files.check_writable(path)
    with files.lock(path):
        yield FileOutput(path, plan, overwrite)
