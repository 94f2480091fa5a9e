"""The command `knnprompt`. Each of its commands runs a binary of experiments/, which a wheel holds within the package.

Nothing heavy is imported here, so that `knnprompt --help` answers at once.
"""

import ast
import pathlib
import sys
import types

import knnprompt_jax

COMMANDS = {  # Each command's file, in the order of a user's work.
    "fit": "fit",
    "evaluate": "evaluate",
    "predict": "predict",
    "explain": "explain",
    "look": "look",
    "tune": "tune",
    "compare": "compare",
    "paper": "paper",
    "report": "report",
    "benchmark": "benchmark",
}
_PACKAGE = pathlib.Path(__file__).parent


def main() -> None:
    """Run the binary that the first argument names; print one line and exit with status 2 if there is none."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        print(usage())
    elif name == "--version":
        print(f"knnprompt_jax {knnprompt_jax.__version__}")
    elif name in COMMANDS:
        sys.argv, path = [f"knnprompt {name}", *rest], binary(name)
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        module.__file__ = str(path)
        exec(compile(path.read_bytes(), path, "exec"), vars(module))  # Unlike runpy, this leaves sys.argv as it is.
    else:
        print(f"error: unknown command {name!r}: choose from {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(2)


def binary(command: str) -> pathlib.Path:
    """Return the file that a command runs."""
    packaged = _PACKAGE / "experiments"
    return (packaged if packaged.is_dir() else _PACKAGE.parent / "experiments") / f"{COMMANDS[command]}.py"


def usage() -> str:
    """Return the text of `knnprompt --help`: each command with the first line of its binary's docstring."""
    lines = ["knnprompt <command> --option=value ...", ""]
    for name in COMMANDS:
        docstring = ast.get_docstring(ast.parse(binary(name).read_text(encoding="utf-8"))) or ""
        lines.append(f"  {name:{max(map(len, COMMANDS))}}  {docstring.splitlines()[0]}")
    return "\n".join([*lines, "", "knnprompt <command> --help lists the options of a command."])
