"""A Hugging Face Hub on the loopback interface: its protocol for models, with failures on demand."""

import collections
import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping

import huggingface_hub
import pytest
from huggingface_hub import constants

LARGE = (".safetensors", ".msgpack", ".bin", ".parquet")


@dataclasses.dataclass
class Repository:
    """Files at one commit. `access` is "public", "private" or "gated"; both of these are refused."""

    files: Mapping[str, bytes]
    access: str = "public"
    revisions: tuple[str, ...] = ("main",)

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()

    def listing(self, name: str) -> dict:
        content = self.files[name]
        git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        sha256 = hashlib.sha256(content).hexdigest()
        large = {"oid": sha256, "sha256": sha256, "size": len(content), "pointerSize": 130}
        return {"size": len(content), "oid": git, **({"lfs": large} if name.endswith(LARGE) else {})}


@dataclasses.dataclass
class Failure:
    """A failure of the next `times` requests whose "METHOD path" matches `pattern`."""

    pattern: str
    times: int
    status: int = 0
    send: int | None = None  # The connection ends after this number of bytes of the body.
    alter: bool = False


class Hub:
    """`repositories` by "models/owner/name"; `requests` as (method, path, headers)."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.failures: list[Failure] = []
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self.url = ""

    def fail(self, pattern: str, times: int = 1, **how: object) -> None:
        self.failures.append(Failure(pattern, times, **how))

    def asked(self) -> collections.Counter[str]:
        """Count the requests for each file: the client sends a HEAD for each that it lacks."""
        paths = [path for method, path, _ in self.requests if method == "HEAD"]
        return collections.Counter(path.rpartition("/")[2] for path in paths)

    def failure(self, request: str) -> Failure | None:
        for failure in self.failures:
            if failure.times and re.search(failure.pattern, request):
                failure.times -= 1
                return failure
        return None


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield hub
        server.shutdown()


def connect(hub: Hub, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `huggingface_hub` use this Hub and that cache folder, and never wait."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", f"{cache}/no-token")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    huggingface_hub.close_session()


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path).path
        self.hub.requests.append((self.command, path, dict(self.headers)))
        self._failure = self.hub.failure(f"{self.command} {path}")
        if self._failure and self._failure.status:
            return self._answer(self._failure.status, b"{}")
        if api := re.fullmatch(r"/api/(models/.+?)(?:/(revision|tree)/([^/]+)(/.*)?)?", path):
            return self._api(*api.groups())
        if file := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            return self._file(f"models/{file[1]}", *file.groups()[1:])
        if stored := re.fullmatch(r"/stored/(\w+)", path):
            return self._stored(stored[1])
        return self._answer(404, b"")

    do_HEAD = do_POST = do_GET

    def _repository(self, name: str, revision: str) -> Repository | None:
        """Return the repository if this request may read it; otherwise send the Hub's answer and return None."""
        repository = self.hub.repositories.get(name)
        if repository is None or repository.access == "private":
            self._answer(401, b"")  # Without a login, missing and private repositories look alike.
        elif urllib.parse.unquote(revision) not in (*repository.revisions, repository.commit):
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            return repository
        return None

    def _api(self, name: str, what: str | None, revision: str | None, inside: str | None) -> None:
        if (repository := self._repository(name, revision or "main")) is None:
            return
        names = sorted(repository.files)
        if what in (None, "revision"):
            siblings = [{"rfilename": file} for file in names]
            owner, _, short = name.partition("/")[2].partition("/")
            body = {"id": f"{owner}/{short}", "sha": repository.commit, "siblings": siblings, "tags": []}
            return self._answer(200, json.dumps(body).encode())
        start = urllib.parse.unquote(inside or "").strip("/")
        names = [file for file in names if not start or file.startswith(f"{start}/")]
        listed = [{"type": "file", "path": file, **repository.listing(file)} for file in names]
        return self._answer(200, json.dumps(listed).encode())

    def _file(self, name: str, revision: str, file: str) -> None:
        if (repository := self._repository(name, revision)) is None:
            return None
        if repository.access == "gated":
            return self._answer(403, b"", {"X-Error-Code": "GatedRepo"})
        file = urllib.parse.unquote(file)
        commit = {"X-Repo-Commit": repository.commit}
        if file not in repository.files:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound", **commit})
        listing = repository.listing(file)
        if "lfs" not in listing:
            return self._answer(200, repository.files[file], {"ETag": f'"{listing["oid"]}"', **commit})
        sha256, elsewhere = listing["lfs"]["oid"], self.hub.url.replace("127.0.0.1", "localhost")
        headers = {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(listing["size"]), **commit}
        return self._answer(302, b"", {"Location": f"{elsewhere}/stored/{sha256}", **headers})

    def _stored(self, sha256: str) -> None:
        contents = (content for repository in self.hub.repositories.values() for content in repository.files.values())
        content = next(content for content in contents if hashlib.sha256(content).hexdigest() == sha256)
        self._answer(200, content, {"ETag": f'"{sha256}"'})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        failure = self._failure
        if failure and failure.alter:
            body = bytes([body[0] ^ 1]) + body[1:]
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if failure is None or failure.send is None else body[: failure.send])
        if failure and failure.send is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
