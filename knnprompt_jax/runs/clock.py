"""Progress over passes, and how long those that are left will take at the pace so far."""

import datetime
import sys
import time
from collections.abc import Sequence

import tqdm

from knnprompt_jax import parallel
from knnprompt_jax.runs import passes as passes_lib


class Clock:
    """Says on standard error when a pass is over."""

    def __init__(self, passes: Sequence[passes_lib.Pass]):
        self.total, self.work, self.count, self.left = len(passes), 0.0, 0, sum(planned.work for planned in passes)
        self.started = time.monotonic()

    def title(self, planned: passes_lib.Pass) -> str:
        """The pass in words, with its number among all."""
        problem, shown = planned.runs[0].problem, f"{len(planned.demonstrations)} demonstrations"
        number = f"{self.count + 1}/{self.total} " if self.total > 1 else ""
        return f"{number}{planned.model.short_name} {problem.task.name} seed {problem.split.seed}, {shown}"

    def done(self, planned: passes_lib.Pass) -> None:
        """Counts the pass as over."""
        title = self.title(planned)
        self.count, self.work, self.left = self.count + 1, self.work + planned.work, self.left - planned.work
        if parallel.is_main() and self.total > 1:
            spent = time.monotonic() - self.started
            left = datetime.timedelta(seconds=round(spent * max(0.0, self.left) / max(1.0, self.work)))
            tqdm.tqdm.write(f"{title}: {len(planned.runs)} records; {left} left", file=sys.stderr)
