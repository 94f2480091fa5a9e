"""Explanations of failed downloads from the Hugging Face Hub, in one line.

`huggingface_hub` retries if the Hub is busy or a connection breaks. Its environment variables apply: HF_HOME,
HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE.
"""

from huggingface_hub import errors as hub_errors

_ADVICE = "give a local folder, fill the cache on a connected machine, or check the network"


def reason(error: BaseException) -> str:
    """Return in one line why a download failed, and what to do."""
    cause: BaseException | None = error  # Libraries may wrap the error of the Hub or of the connection.
    while cause is not None and not isinstance(cause, hub_errors.HTTPError | hub_errors.OfflineModeIsEnabled):
        cause = cause.__cause__ or cause.__context__
    error = cause or error
    status = error.response.status_code if isinstance(error, hub_errors.HfHubHTTPError) else None
    if isinstance(error, hub_errors.OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set: {_ADVICE}"
    if isinstance(error, hub_errors.GatedRepoError):
        return "it is gated on the Hub: accept its terms there and set HF_TOKEN, or give a local folder"
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return "the Hub has no such revision: give a branch, tag or commit that it lists"
    if isinstance(error, hub_errors.RepositoryNotFoundError) or status == 401:
        return (
            "nothing public on the Hub has that name: check the name, or set HF_TOKEN to a valid token if it is private"
        )
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"the Hub cannot be read ({type(error).__name__}: {first_line}): {_ADVICE}"
