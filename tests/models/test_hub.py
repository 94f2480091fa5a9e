"""A model name resolves to local files, then the Hub (one weight format), then the cache; errors give advice.

The real client speaks to a Hub on the loopback interface.
"""

import shutil

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.models import hub, registry
from tests import hub_server

SMALL = ["chat_template.jinja", "config.json", "merges.txt", "tokenizer.json", "vocab.json"]
SAFETENSORS = ["model.safetensors"]
FLAX = ["flax_model.msgpack.index.json", "flax_model-00001-of-00002.msgpack", "flax_model-00002-of-00002.msgpack"]
TORCH = ["pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
OTHERS = ["README.md", "tokenizer.model", "onnx/config.json", "onnx/model.safetensors", "rust_model.ot", "tf_model.h5"]
GGUF = ["model.Q4_0.gguf", "sub/model [x].Q8_0.gguf"]
LARGE = (*hub_server.LARGE, ".gguf")
BYTES = np.random.default_rng(0).bytes(90_001)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Hub with the model owner/name, and an empty cache."""
    monkeypatch.setattr(hub_server, "LARGE", LARGE)
    with hub_server.serving() as server:
        hub_server.connect(server, str(tmp_path / "cache"), monkeypatch)
        publish(server, SMALL + SAFETENSORS)
        yield server


def publish(server: hub_server.Hub, files: list[str], **options: object) -> None:
    contents = {file: BYTES if file.endswith(LARGE) else f"{{}}{file}".encode() for file in files}
    server.repositories["models/owner/name"] = hub_server.Repository(
        {**contents, "config.json": b'{"model_type": "gpt2"}'}, **options
    )


def message(*arguments: object, **options: object) -> str:
    """Return the error of `resolve`."""
    with pytest.raises(errors.UserError) as failure:
        hub.resolve(*arguments, **options)
    return str(failure.value)


@pytest.mark.parametrize(
    ("weights", "fetched"), [(SAFETENSORS + FLAX + TORCH, SAFETENSORS), (FLAX + TORCH, FLAX), (TORCH, TORCH)]
)
def test_one_format_is_fetched(server, weights, fetched):
    publish(server, SMALL + OTHERS + weights + ["1_Pooling/config.json"])
    folder = hub.resolve("owner/name")
    assert sorted(path.name for path in folder.iterdir()) == sorted([*SMALL, *fetched, "1_Pooling"])
    assert sum(server.asked().values()) == len(SMALL + fetched) + 1
    assert (folder / fetched[-1]).read_bytes() == BYTES
    server.requests.clear()
    assert hub.resolve("owner/name") == folder and not server.asked(), "a complete cache is not fetched again"


def test_a_tokenizer_of_another_format_is_fetched_only_alone(server):
    publish(server, ["tokenizer.model", *SAFETENSORS])
    assert (hub.resolve("owner/name") / "tokenizer.model").exists()


def test_local_files_and_shipped_models_come_before_the_hub(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (hub.resolve("tiny") / "config.json").is_file() and hub.resolve("smollm2").suffix == ".gguf"
    for name in ("gpt2", "tiny"):
        (tmp_path / name).mkdir()
        assert hub.resolve(name).samefile(tmp_path / name)
    for name in ("a.gguf", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert hub.resolve("a.gguf", config_only=True).samefile(tmp_path / "a.gguf")
    for name in ("./nowhere", "/nowhere/else", "~/nowhere", "a/b/c", "nowhere/"):
        assert message(name) == f"no such folder: {name}"
    for name in ("./b.gguf", "b.gguf", "a/b/c:other.gguf"):
        assert message(name) == f"no such file: {name}"
    assert message("a" * 300).startswith("model 'aaaa") and "File name too long" in message("a" * 300)
    assert message("") == "model='': choose smollm2, gemma-3-270m, tiny, a folder, a file or a Hub name"
    assert message("notes.txt") == "no such folder or .gguf file: notes.txt"
    assert not server.requests


def test_a_folder_with_one_gguf_file_is_that_file(server, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("README.md", "config.json", "one.gguf"):
        (folder / name).write_bytes(b"x")
    assert hub.resolve(str(folder)) == hub.resolve(str(folder), config_only=True) == folder / "one.gguf"
    (folder / "two.gguf").write_bytes(b"x")
    assert message(str(folder)) == f"{folder}: 2 .gguf files, name one: one.gguf, two.gguf"
    (folder / "model.safetensors").write_bytes(b"x")
    assert hub.resolve(str(folder)) == folder


WEIGHTS = "it has no weights (model.safetensors, flax_model.msgpack, pytorch_model.bin): "


def test_a_name_may_end_in_a_revision(server):
    publish(server, SMALL + GGUF + SAFETENSORS, revisions=("main", "refs/pr/1"))
    assert hub.resolve("owner/name@refs/pr/1") == hub.resolve("owner/name")
    assert hub.resolve(f"owner/name@refs/pr/1:{GGUF[1]}").read_bytes() == BYTES
    assert any("refs%2Fpr%2F1" in path for _, path, _ in server.requests)
    assert "model 'owner/name', revision 'a@b'," in message("owner/name@a@b")
    assert message("tiny@v2") == "model 'tiny@v2': tiny comes from PyPI or with this package: leave out @v2"


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("owner/name@refs/pr/1", "name"),
        ("gpt2-xl@main", "gpt2-xl"),
        ("owner/name:file.gguf", "name:file.gguf"),
        ("/models@home/a/llama", "llama"),
        ("./a@b", "a@b"),
    ],
)
def test_a_base_name_has_no_owner_folder_and_revision(name, base):
    assert hub.base_name(name) == base


@pytest.mark.parametrize(
    ("listed", "name", "reason"),
    [
        (SMALL, "owner/name", WEIGHTS + "choose another model or revision"),
        (SMALL + GGUF, "owner/name", WEIGHTS + "name one of its files, such as owner/name:model.Q4_0.gguf"),
        (["README.md"], "owner/name", "it has no config.json: choose another model"),
        (GGUF, "owner/name", "it has no config.json: name one of its files, such as owner/name:model.Q4_0.gguf"),
        (SMALL + GGUF, "owner/name:a.gguf", f"it has no file a.gguf; choices: {', '.join(GGUF)}"),
        (SMALL, "owner/name:../a.gguf", "it has no file ../a.gguf; choices: none"),
    ],
)
def test_incomplete_models_are_refused(server, listed, name, reason):
    publish(server, listed)
    if "config.json" not in listed:
        del server.repositories["models/owner/name"].files["config.json"]
    assert message(name) == f"model 'owner/name' cannot be used from the Hub: {reason}"


def test_offline_mode_serves_the_cache_and_asks_nothing(server, monkeypatch):
    publish(server, SMALL + GGUF + SAFETENSORS)
    file, folder = hub.resolve(f"owner/name:{GGUF[1]}"), hub.resolve("owner/name")
    server.requests.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert hub.resolve(f"owner/name:{GGUF[1]}") == file and hub.resolve("owner/name") == folder
    (folder / "model.safetensors").unlink()
    for name in ("owner/name", "owner/other", f"owner/name:{GGUF[0]}"):
        assert "or in the cache, and HF_HUB_OFFLINE is set: give a local folder, " in (told := message(name))
        assert "did you mean" not in told
    assert message("google/gemma-3-270m@main").endswith("or check the network; did you mean 'gemma-3-270m'?")
    assert "did you mean" not in message("google/gemma-2-2b")
    assert not server.requests


@pytest.mark.parametrize(
    ("name", "meant"),
    [("gemma", "gemma-3-270m"), ("gema-3-270m", "gemma-3-270m"), ("SmolLM2-135M", "smollm2"), ("smollm", "smollm2")],
)
def test_a_shipped_model_that_is_misspelt_or_abbreviated_is_named_without_asking_the_hub(server, name, meant):
    assert message(name) == f"unknown model {name!r}: did you mean {meant!r}? (shipped: smollm2, gemma-3-270m, tiny)"
    assert not server.requests


NOT_FOUND = "is not a local folder or in the cache, and "


@pytest.mark.parametrize(
    ("arguments", "access", "expected"),
    [
        (("owner/name@v7",), "public", f"model 'owner/name', revision 'v7', {NOT_FOUND}the"),
        (
            ("owner/name",),
            "private",
            "has that name: check the name, or set HF_TOKEN to a valid token if it is private",
        ),
        (("owner/name",), "gated", "it is gated on the Hub: accept its terms there and set HF_TOKEN"),
        (("naïve/one",), "public", "'naïve/one' is neither a folder nor a possible Hub name (owner/name, owner"),
    ],
)
def test_refusals_say_what_to_do(server, arguments, access, expected):
    publish(server, SMALL + SAFETENSORS, access=access)
    assert expected in message(*arguments)


@pytest.mark.parametrize(("request_", "failure"), [("/api/", {"status": 503}), ("GET /stored/", {"send": 0})])
def test_a_hub_that_stays_busy_is_reported(server, request_, failure):
    server.fail(request_, times=1000, **failure)
    error = message("owner/name@main")
    assert "model 'owner/name', revision 'main', is not a local folder or in the cache, and the Hub cannot" in error
    assert error.endswith("fill the cache on a connected machine, or check the network")


@pytest.mark.parametrize("file", ["tokenizer.json", "model.safetensors"])
def test_a_wrong_checksum_is_found_and_the_file_removed(server, file):
    server.fail("GET /stored/" if file in SAFETENSORS else f"GET .*/{file}", alter=True)
    assert f"{file} arrived with another checksum than listed, and was removed: start again" in message("owner/name")
    folder = hub.resolve("owner/name")
    assert (folder / file).read_bytes() == server.repositories["models/owner/name"].files[file]
    assert server.asked()[file] == 2


@pytest.mark.parametrize("status", [401, 403, 404, 503, None])
def test_cache_serves_where_the_hub_does_not(server, status, monkeypatch):
    folder = hub.resolve("owner/name")
    if status is None:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    else:
        server.fail("/api/", times=1000, status=status)
    assert hub.resolve("owner/name") == hub.resolve("owner/name", config_only=True) == folder
    shutil.rmtree(folder.parents[1] / "trees")  # Other programs fill the cache without it.
    assert hub.resolve("owner/name") == folder
    (folder / "model.safetensors").unlink()
    assert hub.resolve("owner/name", config_only=True) == folder
    assert "or in the cache, and " in message("owner/name")


def test_weights_of_unsupported_models_are_not_fetched(server):
    publish(server, SMALL + SAFETENSORS)
    server.repositories["models/owner/name"].files["config.json"] = b'{"model_type": "mamba"}'
    with pytest.raises(errors.UserError, match="owner/name: config.json: model_type='mamba' is not supported"):
        registry.describe("owner/name")
    assert set(server.asked()) == {"config.json"}
