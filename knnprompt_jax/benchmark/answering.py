"""The answering end of a process that runs another library: a JSON object per line in, a JSON object per line out.

In: {"do": name, ...}, a method and its arguments. Out: {"seconds": …}, or {"error": …} if the method failed.
Nothing but the standard library is imported, so that a Python without JAX can run it.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(peers: Any, settle: Callable[[], None] = lambda: None) -> None:
    """Answer the lines of standard input with the methods of `peers` until it ends.

    `settle` waits for work that a method left to a device. The clock runs until it returns.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = sys.stderr  # What libraries print is no answer.
    for line in sys.stdin:
        arguments = json.loads(line)
        started = time.perf_counter()
        try:
            getattr(peers, arguments.pop("do"))(**arguments)
            settle()
            answer: dict[str, Any] = {"seconds": time.perf_counter() - started}
        except Exception as error:  # The other process has to learn of every failure.
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(json.dumps(answer), file=answers)
