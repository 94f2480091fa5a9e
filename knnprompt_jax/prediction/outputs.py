"""The output of predictions: standard output, or a file that appears when it is complete, and an interrupted run resumes."""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from knnprompt_jax import errors, files
from knnprompt_jax.prediction import rows
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example


class Output:
    """Standard output.

    Attributes:
        num_rows: finished rows of the input, including bad rows.
        num_predictions: rows of the output.
        num_bytes: finished bytes of the output.
        kept: the columns of the input that are copied; set before the first batch.
        header: the first bytes of the output; set before the first batch.
    """

    num_rows: int = 0
    num_predictions: int = 0
    num_bytes: int = 0
    kept: tuple[str, ...] = ()
    header: bytes = b""

    def unfinished(self, read: Callable[[], Iterator[rows.Row]], source: str) -> Iterator[rows.Row]:
        """Return the rows that no earlier run has finished."""
        return read()

    def write(self, content: bytes, examples: Sequence[Example]) -> None:
        """Append the predictions of a batch; the header comes before the first."""
        content = content if self.num_bytes else self.header + content
        self.num_bytes += len(content)
        self.num_predictions += len(examples)
        self.put(content, examples)

    def put(self, content: bytes, examples: Sequence[Example]) -> None:
        """Append bytes, the last ones of the output's `num_bytes`."""
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    def finish(self) -> None:
        """End the output."""
        if not self.num_bytes:  # There were no rows.
            self.write(b"", ())


class FileOutput(Output):
    """A file. While it is written, `.<name>.writing` grows, and `.<name>.progress` notes how much of it is finished."""

    def __init__(self, path: pathlib.Path, plan: dict[str, Any], overwrite: bool = False):
        """Begin or resume the file at `path`, which the caller has locked.

        Args:
            plan: everything that the predictions depend on, except the rows.
            overwrite: replace an earlier file once the new one is complete, and drop what a run with another plan or of
                other rows began.

        Raises:
            UserError: the file exists already, or an unfinished run had another plan or was damaged.
        """
        self.path, self.plan, self._overwrite = path, plan, overwrite
        self._draft = files.draft(path)
        self._progress = self._draft.with_suffix(".progress")
        with files.refusals(path):
            if not self._draft.exists():  # A process died after it had moved the finished file into its place.
                self._progress.unlink(missing_ok=True)
            if path.exists() and not overwrite:
                raise errors.UserError(f"{path}: exists already; choose another file, or add --overwrite")
            if self._progress.exists():
                self._resume()
            else:
                self._begin()

    def unfinished(self, read: Callable[[], Iterator[rows.Row]], source: str) -> Iterator[rows.Row]:
        """Return the rows after those that an earlier run has finished.

        Args:
            read: returns the rows of the input from the first one on.
            source: the path of the input, or - for standard input, which can be read only once.

        Raises:
            UserError: a bad row comes before the last finished one, or the input does not begin with the finished rows
                (with `overwrite`, the output then begins anew).
        """
        remaining, seen = read(), 0
        for row in remaining:
            if isinstance(row, errors.UserError) and seen < self.num_rows:
                raise row
            if isinstance(row, errors.UserError) or row.row >= self.num_rows:
                remaining = itertools.chain([row], remaining)
                break
            self._digest.update(splits.row_content(row))
            seen = row.row + 1
        if self._digest.hexdigest() == self._checksum:
            return remaining
        if source == commands.STANDARD or not self._overwrite:
            name, advice = source, "add --overwrite"
            if source == commands.STANDARD:  # Its first rows are gone, so that they cannot be labelled again.
                name, advice = "standard input", f"remove {self._draft}"
            raise errors.UserError(
                f"{name}: its first {self.num_rows} rows are not those labelled already: choose another output, or {advice}"
            )
        self._begin()
        return read()

    def put(self, content: bytes, examples: Sequence[Example]) -> None:
        """Append bytes, durably, and note them as finished."""
        with files.refusals(self.path), self._draft.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        for example in examples:
            self._digest.update(splits.row_content(example))
            self.num_rows = example.row + 1
        note = {"plan": self.plan, "rows": self.num_rows, "checksum": self._digest.hexdigest()}
        note |= {"predictions": self.num_predictions, "bytes": self.num_bytes, "kept": self.kept}
        files.write(self._progress, json.dumps(note))

    def finish(self) -> None:
        """Put the complete file in its place."""
        super().finish()
        with files.refusals(self.path):
            files.finish_file(self.path)
            self._progress.unlink(missing_ok=True)

    def _resume(self) -> None:
        try:
            note = json.loads(self._progress.read_text(encoding="utf-8"))
            differing = [name for name, value in self.plan.items() if note["plan"].get(name) != value]
            self.num_rows, self._checksum = int(note["rows"]), note["checksum"]
            self.num_predictions = int(note.get("predictions", self.num_rows))
            self.num_bytes, self.kept = int(note["bytes"]), tuple(note["kept"])
            if (size := self._draft.stat().st_size) < self.num_bytes:
                raise ValueError(f"{size} of {self.num_bytes} bytes")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise errors.UserError(
                f"{self.path}: an unfinished run is damaged: remove {self._draft} and {self._progress} to start anew"
            ) from None
        if not differing:
            self._digest = hashlib.sha256()
            os.truncate(self._draft, self.num_bytes)
        elif self._overwrite:
            self._begin()
        else:
            raise errors.UserError(
                f"{self.path}: an unfinished run had another --{', --'.join(differing)}: choose another file, or add --overwrite"
            )

    def _begin(self) -> None:
        """Drop what earlier runs have written."""
        self.num_rows = self.num_predictions = self.num_bytes = 0
        self.kept = ()
        self._digest = hashlib.sha256()
        self._checksum = self._digest.hexdigest()
        with files.refusals(self.path):
            self._progress.unlink(missing_ok=True)
            self._draft.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(path: str, plan: dict[str, Any], overwrite: bool = False) -> Iterator[Output]:
    """Lock and yield the output, a file or - for standard output.

    Raises:
        UserError: another process writes to the file, it cannot be written, or as `FileOutput`.
    """
    if path == commands.STANDARD:
        yield Output()
        return
    files.check_writable(pathlib.Path(path))
    with files.lock(pathlib.Path(path)):
        yield FileOutput(pathlib.Path(path), plan, overwrite)
