"""The command `knnprompt`. Each of its commands runs a binary of experiments/, which a wheel holds within the package.

Nothing heavy is imported here, so that `knnprompt --help` answers at once.
"""

import ast
import importlib.util
import pathlib
import sys
import types

import knnprompt_jax

# Each command and its file have one name; in the order of a user's work.
COMMANDS = (
    *("fit", "evaluate", "predict", "explain", "look", "compare", "fine_tune", "paper", "report"),
    *("benchmark", "check"),
)
_PACKAGE = pathlib.Path(__file__).parents[1]


def main() -> None:
    """Run the binary that the first argument names; print one line and exit with status 2 if there is none."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        print(usage())
    elif name == "--version":
        print(f"knnprompt_jax {knnprompt_jax.__version__}")
    elif name in COMMANDS:
        sys.argv = [f"knnprompt {name}", *rest]
        binary = _load(name)
        binary.FLAGS.run(binary.main)
    else:
        print(f"error: unknown command {name!r}: choose from {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(2)


def path_of(command: str) -> pathlib.Path:
    """Return the file of a command's binary."""
    packaged = _PACKAGE / "experiments"
    folder = packaged if packaged.is_dir() else _PACKAGE.parent / "experiments"
    return folder / f"{command}.py"


def usage() -> str:
    """Return the text of `knnprompt --help`: each command with the first line of its binary's docstring."""
    lines = ["knnprompt <command> --option=value ...", ""]
    width = max(map(len, COMMANDS))
    for name in COMMANDS:
        docstring = ast.get_docstring(ast.parse(path_of(name).read_text(encoding="utf-8"))) or ""
        lines.append(f"  {name:{width}}  {docstring.splitlines()[0]}")
    return "\n".join([*lines, "", "knnprompt <command> --help lists the options of a command."])


def _load(command: str) -> types.ModuleType:
    """Import the binary of a command, which defines its flags."""
    specification = importlib.util.spec_from_file_location(f"experiments.{command}", path_of(command))
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    return module
