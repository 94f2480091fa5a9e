"""Locks, drafts, and checks before anything is written."""

import os
import pathlib
import re

import pytest

from knnprompt_jax import errors, files
from tests import processes

HOLDER = """
import pathlib, sys
from knnprompt_jax import files
with files.lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """A path that another process holds."""
    path = tmp_path / "new" / "store"
    with processes.start("-c", HOLDER, path) as process:
        assert process.stdout.readline() == "held\n"
        yield path, process
        process.kill()


@pytest.mark.parametrize("path", ["/proc/store", "{}/file/store", "{}/file/folder/store"])
def test_a_lock_in_an_unwritable_folder_blames_no_other_process(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.UserError) as caught, files.lock(pathlib.Path(path.format(tmp_path))):
        pass
    assert "another process" not in str(caught.value)


def test_a_held_path_is_refused_under_every_name(held):
    path, process = held
    link = path.parent.parent / "link"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(errors.UserError) as caught, files.lock(name):
            pass
        assert str(caught.value) == f"{name}: another process is writing to it"
    process.stdin.close()
    process.wait()
    assert not list(path.parent.iterdir())
    with files.lock(link):
        pass


def test_the_lock_of_a_killed_process_holds_nothing(held):
    path, process = held
    process.kill()
    process.wait()
    assert [left.name for left in path.parent.iterdir()] == [".store.lock"]
    with files.lock(path):
        pass
    assert not list(path.parent.iterdir())


def test_a_new_file_is_complete_or_absent(tmp_path):
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        with files.new_file(path) as draft:
            draft.write_bytes(content)
        assert path.read_bytes() == content
    with pytest.raises(ZeroDivisionError), files.new_file(path) as draft:
        draft.write_bytes(b"three")
        raise ZeroDivisionError
    assert [left.name for left in tmp_path.iterdir()] == ["file"] and path.read_bytes() == b"two"
    with (
        pytest.raises(errors.UserError, match="file: another process is writing to it"),
        files.new_file(path),
        files.new_file(path),
    ):
        pass


def test_a_link_to_a_replaced_file_remains(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "file").symlink_to(tmp_path / "there" / "file")
    for content in ("one", "two"):
        with files.new_file(tmp_path / "file") as draft:
            draft.write_text(content)
        assert (tmp_path / "file").read_text() == content
    assert (tmp_path / "file").is_symlink()
    assert [left.name for left in (tmp_path / "there").iterdir()] == ["file"]


@pytest.fixture
def places(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("folder", {}, "folder: it is a folder, and a file is needed"),
        ("file", {"folder": True}, "file: it is a file, and a folder is needed"),
        ("pipe", {}, "pipe: it is neither a file nor a folder, and would be replaced"),
        ("file/below/it", {"folder": True}, "file is a file, not a folder"),
        ("link", {}, "link: {}/link is a link to nowhere, which does not exist"),
        ("loop", {"folder": True}, "loop: {}/loop is a link to loop, which does not exist"),
        ("x" * 300, {}, "File name too long"),
        ("x" * 231, {}, "File name too long"),
        ("a\0b", {}, "a path has no NUL characters"),
        ("/", {"folder": True}, "/: it is the root folder"),
        ("new", {"num_bytes": 2**60}, "new: 1,152,921,504,606,846,976 bytes are needed, and "),
    ],
)
def test_unwritable_paths_are_refused_before_the_work(places, name, options, message):
    before = sorted(places.rglob("*"))
    with pytest.raises(errors.UserError, match=re.escape(message.format(places))):
        files.check_writable(places / name, **options)
    assert sorted(places.rglob("*")) == before


@pytest.mark.parametrize("check", [files.check_writable, files.check_readable])
def test_a_home_folder_that_the_shell_left_is_refused_unless_it_exists(tmp_path, monkeypatch, check):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.UserError, match=re.escape("~/new: the shell puts a home folder in place of ~ only")):
        check(pathlib.Path("~/new"))
    (tmp_path / "~").mkdir()
    (tmp_path / "~" / "new").touch()
    check(pathlib.Path("~/new"))
