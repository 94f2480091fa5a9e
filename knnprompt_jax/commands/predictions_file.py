"""The output of predictions: standard output, or a file.

A file appears when it is complete, and an interrupted run resumes.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from knnprompt_jax import errors, files
from knnprompt_jax.classifier import schema
from knnprompt_jax.commands import unlabelled
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example

_BLOCK = 2**20  # Bytes that are read at a time.


@dataclasses.dataclass
class Progress:
    """The finished part of an output, as a file records it.

    Attributes:
        plan: see `FileOutput`.
        rows: the number of rows of the input, including bad rows.
        checksum: SHA-256 of these rows.
        predictions: the number of rows of the output.
        bytes: the size of the output.
        content: SHA-256 of the output.
        kept: the columns of the input that are copied; set before the first batch.
        outcomes: the number of rows of the output by outcome.
    """

    plan: Mapping[str, Any]
    rows: int = 0
    checksum: str = hashlib.sha256().hexdigest()
    predictions: int = 0
    bytes: int = 0
    content: str = hashlib.sha256().hexdigest()
    kept: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Output:
    """Standard output.

    Attributes:
        progress: what is finished.
        header: the first bytes of the output; set before the first batch.
    """

    header: bytes = b""

    def __init__(self) -> None:
        self.progress = Progress({})

    def unfinished(self, read: Callable[[], Iterator[unlabelled.Row]], source: str) -> Iterator[unlabelled.Row]:
        """Return the rows that no earlier run has finished; see `FileOutput.unfinished`."""
        return read()

    def write(self, content: bytes, examples: Sequence[Example], outcomes: Iterable[str] = ()) -> None:
        """Append the predictions of a batch; the header precedes the first batch."""
        progress = self.progress
        if not progress.bytes:
            content = self.header + content
        progress.bytes += len(content)
        progress.predictions += len(examples)
        if examples:
            progress.rows = examples[-1].row + 1
        progress.outcomes = collections.Counter(progress.outcomes) + collections.Counter(outcomes)
        self.put(content, examples)

    def put(self, content: bytes, examples: Sequence[Example]) -> None:
        """Append bytes, which `progress` already counts."""
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    def finish(self) -> None:
        """Complete the output; without rows, it is only the header."""
        if not self.progress.bytes:
            self.write(b"", ())


class FileOutput(Output):
    """A file. While it is written, `.<name>.writing` grows, and `.<name>.progress` records how much is finished."""

    def __init__(self, path: pathlib.Path, plan: dict[str, Any], overwrite: bool = False):
        """Begin or resume the file.

        Args:
            path: the file, which the caller has locked.
            plan: everything that the predictions depend on, except the rows.
            overwrite: replace an earlier file once the new one is complete, and drop the unfinished output of a run
                with another plan or other rows.

        Raises:
            UserError: the file exists already, or an unfinished run had another plan or was damaged.
        """
        super().__init__()
        self.path = path
        self.plan = plan
        self._overwrite = overwrite
        self._draft = files.draft(path)
        self._note = self._draft.with_suffix(".progress")
        with files.refusals(path):
            if not self._draft.exists():  # A process died after it had moved the finished file to its path.
                self._note.unlink(missing_ok=True)
            if path.exists() and not overwrite:
                raise errors.UserError(f"{path}: exists already; choose another file, or add --overwrite")
            if self._note.exists():
                self._resume()
            else:
                self._begin()

    def unfinished(self, read: Callable[[], Iterator[unlabelled.Row]], source: str) -> Iterator[unlabelled.Row]:
        """Return the rows after those that an earlier run has finished.

        Args:
            read: returns the rows of the input from the first one on.
            source: the path of the input, or - for standard input, which can be read only once, as can a pipe.

        Raises:
            UserError: a bad row precedes the last finished one, or the input does not begin with the finished rows
                (with `overwrite`, the output of a file then begins anew).
        """
        remaining = read()
        num_seen = 0
        for row in remaining:
            if isinstance(row, errors.UserError) and num_seen < self.progress.rows:
                raise row
            if isinstance(row, errors.UserError) or row.row >= self.progress.rows:
                remaining = itertools.chain([row], remaining)
                break
            self._digest.update(splits.row_content(row))
            num_seen = row.row + 1
        if self._digest.hexdigest() == self.progress.checksum:
            return remaining
        problem = f"its first {self.progress.rows} rows are not those labelled already: choose another output, or"
        is_standard = source == commands.STANDARD
        if is_standard or pathlib.Path(source).is_fifo():  # Its first rows are consumed, and cannot be labelled again.
            raise errors.UserError(f"{'standard input' if is_standard else source}: {problem} remove {self._draft}")
        if not self._overwrite:
            raise errors.UserError(f"{source}: {problem} add --overwrite")
        self._begin()
        return read()

    def put(self, content: bytes, examples: Sequence[Example]) -> None:
        """Append bytes durably and record them as finished."""
        with files.refusals(self.path), self._draft.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._written.update(content)
        for example in examples:
            self._digest.update(splits.row_content(example))
        self.progress.checksum = self._digest.hexdigest()
        self.progress.content = self._written.hexdigest()
        files.write(self._note, json.dumps(vars(self.progress)))

    def finish(self) -> None:
        """Move the complete file to its path."""
        super().finish()
        with files.refusals(self.path):
            files.finish_file(self.path)
            self._note.unlink(missing_ok=True)

    def _resume(self) -> None:
        """Continue an unfinished run, unless its plan differs."""
        try:
            progress = schema.decode(Progress, schema.parse(self._note.read_bytes()))
            written = _digest_of(self._draft, progress.bytes)
            if written.hexdigest() != progress.content:
                raise ValueError("the output is not the one that was written")
        except (ValueError, RecursionError):
            raise errors.UserError(
                f"{self.path}: an unfinished run is damaged: remove {self._draft} and {self._note} to start anew"
            ) from None
        differing = [name for name, value in self.plan.items() if progress.plan.get(name) != value]
        if not differing:
            self.progress = progress
            self._digest = hashlib.sha256()
            self._written = written
            os.truncate(self._draft, progress.bytes)
        elif self._overwrite:
            self._begin()
        else:
            options = ", ".join(f"--{name}" for name in differing)
            raise errors.UserError(
                f"{self.path}: an unfinished run had another {options}: choose another file, or add --overwrite"
            )

    def _begin(self) -> None:
        """Begin an empty output, without what earlier runs wrote."""
        self.progress = Progress(self.plan)
        self._digest = hashlib.sha256()
        self._written = hashlib.sha256()
        with files.refusals(self.path):
            self._note.unlink(missing_ok=True)
            self._draft.unlink(missing_ok=True)


def _digest_of(path: pathlib.Path, num_bytes: int) -> Any:
    """Return the SHA-256 object of a file's first bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(min(num_bytes, _BLOCK)):
            digest.update(block)
            num_bytes -= len(block)
    return digest


@contextlib.contextmanager
def opened(path: str, plan: dict[str, Any], overwrite: bool = False) -> Iterator[Output]:
    """Lock and yield the output.

    Args:
        path: a file, or - for standard output.
        plan: see `FileOutput`.
        overwrite: see `FileOutput`.

    Raises:
        UserError: another process writes to the file, the file cannot be written, or `FileOutput` refuses it.
    """
    if path == commands.STANDARD:
        yield Output()
        return
    files.check_writable(pathlib.Path(path))
    with files.lock(pathlib.Path(path)):
        yield FileOutput(pathlib.Path(path), plan, overwrite)
