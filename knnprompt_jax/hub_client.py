"""Retry downloads of models and data sets from the Hugging Face Hub, and explain failures in one line.

The environment variables of `huggingface_hub` apply: HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from absl import logging
from huggingface_hub import errors as hub_errors

T = TypeVar("T")
_ADVICE = "give a local folder, fill the cache on a connected machine, or check the network"
_WAITS_SECONDS = (1.0, 2.0, 4.0)  # Before each further attempt.
_BUSY = (408, 429, 500, 502, 503, 504)
# Named instead of imported: the client may change its HTTP library.
_NO_CONNECTION = ("ConnectError", "ConnectTimeout", "ProxyError")


def patiently(download: Callable[[], T]) -> T:
    """Return the result of a download; retry it if the Hub is busy or a connection breaks.

    The client keeps complete files and does not fetch them again.
    """
    for wait in _WAITS_SECONDS:
        try:
            return download()
        except Exception as error:  # `datasets` wraps them in its own.
            cause = _root(error)
            if isinstance(cause, hub_errors.HfHubHTTPError):
                may_pass = cause.response.status_code in _BUSY
            else:
                may_pass = isinstance(cause, hub_errors.HTTPError) and type(cause).__name__ not in _NO_CONNECTION
            if not may_pass:
                raise
            logging.warning("the Hub: %s; trying again in %.0f s", _first_line(error), wait)
            time.sleep(wait)
    return download()


def reason(error: BaseException) -> str:
    """Return in one line why a download failed, and what to do."""
    error = _root(error)
    status = error.response.status_code if isinstance(error, hub_errors.HfHubHTTPError) else None
    if isinstance(error, hub_errors.OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set: {_ADVICE}"
    if isinstance(error, hub_errors.GatedRepoError):
        return "on the Hub it is gated: accept its terms there and set HF_TOKEN, or give a local folder"
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return "the Hub has no such revision of it: give a branch, tag or commit that it lists"
    if isinstance(error, hub_errors.RemoteEntryNotFoundError):
        return f"the Hub lists a file that it does not have ({error.response.url}): give another revision or a local folder"
    if isinstance(error, hub_errors.RepositoryNotFoundError) or status == 401:
        return (
            "nothing public on the Hub is called so: check the name, or set HF_TOKEN to a valid token if it is private"
        )
    if status == 403:
        return "the Hub does not allow it: set HF_TOKEN to a token that may read it, or give a local folder"
    return f"the Hub cannot be read ({type(error).__name__}: {_first_line(error)}): {_ADVICE}"


def _root(error: BaseException) -> BaseException:
    """Return the error of the Hub or the connection that a library may have wrapped."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, hub_errors.HTTPError | hub_errors.OfflineModeIsEnabled):
        inner = inner.__cause__ or inner.__context__
    return inner or error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
