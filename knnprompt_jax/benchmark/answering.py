"""The answering end of a process that runs other code: a JSON object per line in, a JSON object per line out.

In: {"do": name, ...}, a method and its arguments. Out: {"seconds": …}, or {"error": …} where the method failed.
Nothing but the standard library is imported, so that a Python without JAX can run it.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(peers: Any, settle: Callable[[], None] = lambda: None) -> None:
    """Answers the lines of standard input, until it ends, with the methods of `peers`.

    `settle` waits for what a method left a device to do; the clock runs on until it returns.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = sys.stderr  # What libraries print is no answer.
    for line in sys.stdin:
        print(json.dumps(_answer(peers, settle, **json.loads(line))), file=answers)


def _answer(peers: Any, settle: Callable[[], None], do: str, **arguments: Any) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        getattr(peers, do)(**arguments)
        settle()
    except Exception as error:  # Whatever went wrong, the other process has to learn of it.
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return {"seconds": time.perf_counter() - started}
