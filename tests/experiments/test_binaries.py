"""The binaries as a user starts them: mistakes in one line."""

import pytest


@pytest.mark.parametrize(
    ("binary", "options", "message"),
    [
        ("compare", ["--methods=icl,bert"], "unknown method 'bert': choose from icl, knn,"),
        ("report", ["--records=none"], "none: no such folder of results"),
        ("report", ["--records=none", "--format=text"], "none: no such folder of records"),
        ("look", ["--store=none"], "not a saved classifier"),
    ],
)
def test_mistakes_are_one_line_and_status_2(start, binary, options, message):
    process = start(binary, *options)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 2 and not out
    assert message in error and error.startswith("error: ") and error.count("\n") == 1
