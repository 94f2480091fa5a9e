"""Names become folders: local ones first, then the Hub in one weight format, then the cache; failures give advice."""

import types

import huggingface_hub
import pytest
from huggingface_hub import errors as hub_errors

from knnprompt_jax import errors
from knnprompt_jax.models import hub, registry

SMALL = ["config.json", "merges.txt", "tokenizer.json", "vocab.json"]
SAFETENSORS = ["model.safetensors"]
FLAX = ["flax_model.msgpack.index.json", "flax_model-00001-of-00002.msgpack", "flax_model-00002-of-00002.msgpack"]
TORCH = ["pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
OTHERS = ["README.md", "onnx/config.json", "onnx/model.safetensors", "rust_model.ot", "tf_model.h5"]


@pytest.fixture
def fake_hub(monkeypatch, tmp_path):
    """A Hub with the files that `serve` names (or that raises it), and a cache, empty until `cached` names a folder."""
    server = types.SimpleNamespace(serve=[], cached=None, asked=[])

    def model_info(self, name: str, revision: str | None, timeout: float) -> types.SimpleNamespace:
        if isinstance(server.serve, Exception):
            raise server.serve
        return types.SimpleNamespace(siblings=[types.SimpleNamespace(rfilename=file) for file in server.serve])

    def snapshot_download(name: str, revision: str | None, allow_patterns: list, local_files_only: bool = False) -> str:
        if local_files_only and server.cached is None:
            raise hub_errors.LocalEntryNotFoundError("not cached")
        server.asked.append(sorted(allow_patterns))
        return str(server.cached or tmp_path)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return server


def _http_error(kind: type, status: int) -> Exception:
    response = types.SimpleNamespace(status_code=status, headers={}, request=None)
    return kind("the server's\nlong message", response=response)


@pytest.mark.parametrize(
    ("weights", "fetched"),
    [(SAFETENSORS + FLAX + TORCH, SAFETENSORS), (FLAX + TORCH, FLAX), (TORCH, TORCH), ([], [])],
)
def test_one_format_is_fetched(fake_hub, tmp_path, weights, fetched):
    fake_hub.serve = SMALL + OTHERS + weights
    assert hub.resolve("owner/name") == tmp_path
    assert fake_hub.asked == [sorted(SMALL + fetched)]


def test_pooling_of_sentence_encoders_is_fetched(fake_hub):
    fake_hub.serve = SMALL + OTHERS + SAFETENSORS + ["modules.json", "1_Pooling/config.json"]
    hub.resolve("owner/name")
    assert fake_hub.asked == [sorted([*SMALL, *SAFETENSORS, "modules.json", "1_Pooling/config.json"])]


def test_folder_comes_first(fake_hub, tmp_path, monkeypatch):
    fake_hub.serve = RuntimeError("the Hub was asked")
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert hub.resolve("gpt2").samefile(tmp_path / "gpt2")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/else", "~/nowhere", "a/b/c", "nowhere/"])
def test_paths_are_not_looked_up(fake_hub, name):
    fake_hub.serve = RuntimeError("the Hub was asked")
    with pytest.raises(errors.UserError, match=f"no such folder: {name}"):
        hub.resolve(name)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (_http_error(hub_errors.RepositoryNotFoundError, 404), "no folder and no public Hub model is called 'x/y'"),
        (_http_error(hub_errors.GatedRepoError, 403), "'x/y' is gated: accept its terms on the Hub and set HF_TOKEN"),
        (_http_error(hub_errors.RevisionNotFoundError, 404), "'x/y' has no revision 'v7' on the Hub"),
        (hub_errors.HFValidationError("bad"), "'x/y' is neither a folder nor a possible Hub name"),
        (hub_errors.OfflineModeIsEnabled("off"), "not in the cache, and HF_HUB_OFFLINE is set: give a local folder"),
        (_http_error(hub_errors.HfHubHTTPError, 503), "not in the cache, and the Hub cannot be read (the server's): "),
        (ConnectionError("no route"), "not in the cache, and the Hub cannot be read (no route): give a local folder"),
    ],
)
def test_failures_say_what_to_do(fake_hub, error, message):
    fake_hub.serve = error
    with pytest.raises(errors.UserError) as failure:
        hub.resolve("x/y", revision="v7")
    assert message in str(failure.value) and "\n" not in str(failure.value)


def test_cache_serves_without_a_connection(fake_hub, tmp_path):
    fake_hub.serve, fake_hub.cached = ConnectionError("no route"), tmp_path / "snapshot"
    fake_hub.cached.mkdir()
    (fake_hub.cached / "config.json").write_text('{"model_type": "gpt2"}')
    assert hub.resolve("x/y", config_only=True) == fake_hub.cached
    with pytest.raises(errors.UserError, match="not in the cache"):
        hub.resolve("x/y")
    (fake_hub.cached / "model.safetensors").touch()
    assert hub.resolve("x/y") == fake_hub.cached


def test_weights_of_unsupported_models_are_not_fetched(fake_hub, tmp_path):
    fake_hub.serve = SMALL + SAFETENSORS
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(errors.UserError, match="x/y: config.json: model_type='llama' is not supported; choices: gpt2"):
        registry.describe("x/y")
    assert fake_hub.asked == [["config.json"]]
