"""Build the reference of the Python API from the docstrings, as pages that open from the file system.

    pip install -e '.[docs]' && python tools/build_reference.py docs/reference

Open docs/reference/index.html. A warning is an error.
"""

import pathlib
import sys
import warnings

import pdoc

MODULES = (
    "knnprompt_jax",
    "knnprompt_jax.inference.lm",
    "knnprompt_jax.methods.method",
    "knnprompt_jax.classifier",
    "knnprompt_jax.inference.states",
    "knnprompt_jax.datastore",
    "knnprompt_jax.tasks",
)


def build(folder: pathlib.Path) -> None:
    """Write a page for each module."""
    pdoc.render.configure(
        docformat="google",
        show_source=False,
        include_undocumented=False,
        template_directory=pathlib.Path(__file__).parent / "reference",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    build(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
