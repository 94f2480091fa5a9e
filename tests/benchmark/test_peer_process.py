"""A process of another library answers, and fails with one line."""

import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import peer_process

CODE = """import os
class Peers:
    works = lambda peers, much: 2 * much
    dies = lambda peers: os._exit(3)
    def fails(self): raise ValueError("so\\nmuch")
"""


def test_a_process_answers_and_fails_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_peers.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    process = peer_process.PeerProcess("Broken", "broken_peers")
    with process.pool:
        seconds, result = process.call("works", much=3, returns_result=True)
        assert 0 < seconds < 60
        assert result == 6
        with pytest.raises(errors.UserError, match="^Broken, fails: ValueError: so much$"):
            process.call("fails")
        with pytest.raises(errors.UserError, match="^Broken, dies: BrokenProcessPool: A process in the process pool"):
            process.call("dies")


def test_a_missing_library_is_an_error_of_one_line():
    process = peer_process.PeerProcess("Missing", "nowhere")
    with process.pool, pytest.raises(errors.UserError, match="Missing, load: ModuleNotFoundError: No module named"):
        process.call("load")
