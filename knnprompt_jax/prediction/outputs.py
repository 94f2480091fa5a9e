"""Where predictions go: a file that appears when it is whole and can be gone on with, or standard output."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from absl import logging

from knnprompt_jax import errors, files
from knnprompt_jax.prediction import rows

STANDARD = "-"
_BLOCK = 2**20  # Bytes.


class StandardOutput:
    """Standard output; a reader that has enough ends the run."""

    mark = rows.Mark()
    reads: tuple[int, ...] = ()
    by_rounding = 0
    kept: tuple[str, ...] = ()

    def write(self, content: bytes, mark: rows.Mark, reads: tuple[int, ...], by_rounding: int = 0) -> bool:
        """Writes; False where nobody reads any more. Raises UserError where the system refuses."""
        del mark, reads, by_rounding
        try:
            with files.refusals(pathlib.Path("standard output")):
                sys.stdout.buffer.write(content)
                sys.stdout.buffer.flush()
        except errors.UserError as error:
            # Python flushes once more at the end, and would tell of the same error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error.__cause__, BrokenPipeError):
                raise
            return False
        return True

    def finish(self) -> None:
        """Nothing is left to do."""


class FileOutput:
    """A file beside which `.<name>.writing` grows and `.<name>.progress` says how much of it counts.

    What counts has a SHA-256 sum in the note of the progress, and so has the note itself.

    Attributes:
      mark: the rows that earlier runs have labelled.
      reads: as in the latest batch of these.
      by_rounding: how many of these rounding decides.
      kept: the columns of the input that are written too; who writes the first batch sets them.
    """

    def __init__(self, path: pathlib.Path, plan: dict[str, Any], overwrite: bool = False):
        """`plan` is what the predictions depend on beside the rows; nobody else may write to `path` meanwhile.

        With `overwrite` an earlier file is replaced once the new one is whole, and the beginning that a run with another plan left is
        dropped.

        Raises:
          UserError: the file exists already, or an unfinished run wrote it with another plan, or was altered since.
        """
        self.path, self.plan = path, plan
        self.mark, self._num_bytes, self._digest = rows.Mark(), 0, hashlib.sha256()
        self.reads: tuple[int, ...] = ()
        self.by_rounding, self.kept = 0, ()
        self._draft = files.draft(path)
        self._progress = self._draft.with_suffix(".progress")
        with files.refusals(path):
            if path.exists():
                if not self._draft.exists():  # The process died when all was done.
                    self._progress.unlink(missing_ok=True)
                if not overwrite:
                    raise errors.UserError(f"{path}: exists already; choose another file, or overwrite it")
            if self._progress.exists():
                self._go_on(overwrite)
            else:
                if self._draft.exists():
                    logging.warning("%s: a run that died left no note of what it had finished: starting anew", path)
                self._draft.unlink(missing_ok=True)

    def write(self, content: bytes, mark: rows.Mark, reads: tuple[int, ...], by_rounding: int = 0) -> bool:
        """Appends the predictions of a batch, so that they and the note of them survive; `by_rounding` counts those of all rows so far
        that rounding decides."""
        with files.refusals(self.path), self._draft.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._num_bytes += len(content)
        self._digest.update(content)
        self.mark, self.reads, self.by_rounding = mark, reads, by_rounding
        counted = {"bytes": self._num_bytes, "sha256": self._digest.hexdigest()}
        note = {"plan": self.plan, **dataclasses.asdict(mark), "reads": reads, "draft": counted}
        note |= {"by_rounding": by_rounding, "kept": self.kept}
        with files.new_file(self._progress) as draft:
            draft.write_text(json.dumps({**note, "sha256": _checksum(note)}), encoding="utf-8")
        return True

    def start_anew(self) -> None:
        """Drops what earlier runs have labelled."""
        with files.refusals(self.path):
            self._progress.unlink()
            self._draft.unlink(missing_ok=True)
        self.mark, self.reads, self.by_rounding, self.kept = rows.Mark(), (), 0, ()
        self._num_bytes, self._digest = 0, hashlib.sha256()

    def finish(self) -> None:
        """Puts the whole file in its place."""
        with files.refusals(self.path):
            self._draft.touch()  # There may have been no rows.
            files.finish_file(self.path)
            self._progress.unlink(missing_ok=True)

    def _go_on(self, overwrite: bool) -> None:
        note = self._note()
        if other := [name for name, value in self.plan.items() if note["plan"].get(name) != value]:
            if overwrite:
                self.start_anew()
                return
            raise errors.UserError(
                f"{self.path}: an unfinished run differs in {', '.join(other)}: choose another file, or overwrite it (overwrite)"
            )
        self.mark, self.reads = rows.Mark(note["rows"], note["checksum"]), tuple(note["reads"])
        self._num_bytes, self.by_rounding = note["draft"]["bytes"], note["by_rounding"]
        self.kept = tuple(note["kept"])
        try:
            with self._draft.open("rb") as file:
                for start in range(0, self._num_bytes, _BLOCK):
                    self._digest.update(file.read(min(_BLOCK, self._num_bytes - start)))
        except FileNotFoundError:
            raise self._damaged(self._draft, "missing") from None
        if self._digest.hexdigest() != note["draft"]["sha256"]:
            raise self._damaged(self._draft, "truncated or altered since it was written")
        os.truncate(self._draft, self._num_bytes)

    def _note(self) -> dict[str, Any]:
        try:
            note = json.loads(self._progress.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            raise self._damaged(self._progress, "not JSON") from None
        if not isinstance(note, dict) or note.pop("sha256", None) != _checksum(note):
            raise self._damaged(self._progress, "altered since it was written")
        return note

    def _damaged(self, path: pathlib.Path, how: str) -> errors.UserError:
        return errors.UserError(f"{path}: {how}: remove {self._draft} and {self._progress} to start anew")


Output = StandardOutput | FileOutput


@contextlib.contextmanager
def to_file(path: pathlib.Path, plan: dict[str, Any], overwrite: bool = False) -> Iterator[FileOutput]:
    """The output at `path`, as `FileOutput`; raises UserError where another process writes to it, or nobody can."""
    files.check_writable(path)
    with files.lock(path):
        yield FileOutput(path, plan, overwrite)


def _checksum(note: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(note, sort_keys=True).encode()).hexdigest()
