"""The command `knnprompt`. Each of its commands runs a binary of experiments/, which a wheel holds within the package.

Nothing heavy is imported here, so that `knnprompt --help` answers at once.
"""

import ast
import pathlib
import runpy
import sys

import knnprompt_jax

# Each command and its file have one name; in the order of a user's work.
COMMANDS = (
    *("fit", "evaluate", "predict", "explain", "look", "compare", "fine_tune", "paper", "report"),
    *("benchmark", "check"),
)


def main() -> None:
    """Run the binary that the first argument names; print one line and exit with status 2 if there is none."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        print(usage())
    elif name == "--version":
        print(f"knnprompt_jax {knnprompt_jax.__version__}")
    elif name in COMMANDS:
        sys.argv = [f"knnprompt {name}", *rest]
        from knnprompt_jax.cli import app

        with app.one_line_errors():
            binary = runpy.run_path(str(path_of(name)), run_name=f"experiments.{name}")
        binary["FLAGS"].run(binary["main"])
    else:
        print(f"error: unknown command {name!r}: choose from {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(2)


def path_of(command: str) -> pathlib.Path:
    """Return the file of a command's binary."""
    return locate(f"experiments/{command}.py")


def locate(file: str) -> pathlib.Path:
    """Return a file of experiments/ or configs/, which a wheel holds within the package."""
    package = pathlib.Path(__file__).resolve().parents[1]
    return package / file if (package / file).exists() else package.parent / file


def usage() -> str:
    """Return the text of `knnprompt --help`: each command with the first line of its binary's docstring."""
    lines = ["knnprompt <command> --option=value ...", ""]
    width = max(map(len, COMMANDS))
    for name in COMMANDS:
        docstring = ast.get_docstring(ast.parse(path_of(name).read_text(encoding="utf-8"))) or ""
        lines.append(f"  {name:{width}}  {docstring.splitlines()[0]}")
    return "\n".join([*lines, "", "knnprompt <command> --help lists the options of a command."])
