"""The command `knnprompt`: each of its commands is a binary of experiments/, which a wheel carries within the package.

Nothing heavy is imported here, so that `knnprompt --help` answers at once.
"""

import ast
import importlib.machinery
import importlib.util
import pathlib
import re
import sys

import knnprompt_jax

COMMANDS = {  # The files, in the order in which people come to need them.
    "fit": "fit",
    "evaluate": "evaluate",
    "predict": "predict",
    "look": "look",
    "tune": "tune",
    "run": "knn_prompting",
    "compare": "compare",
    "tabulate": "tabulate_records",
    "build": "build_datastore",
    "paper": "paper",
    "report": "report",
    "plan": "plan",
    "benchmark": "benchmark",
}
_PACKAGE = pathlib.Path(__file__).parent


def main() -> None:
    """Runs the binary that the first argument names; an unknown name is one line and exit status 2."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        print(usage())
    elif name == "--version":
        print(f"knnprompt_jax {knnprompt_jax.__version__}")
    elif name in COMMANDS:
        sys.argv = [f"knnprompt {name}", *map(_with_config, rest)]
        _run(binary(name))
    else:
        print(f"error: unknown command {name!r}: choose from {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(2)


def binary(command: str) -> pathlib.Path:
    """The file that a command runs."""
    return _folder("experiments") / f"{COMMANDS[command]}.py"


def usage() -> str:
    """What `knnprompt --help` prints: every command with the first line of its binary's description."""
    width = max(map(len, COMMANDS))
    told = [f"  {name:{width}}  {_first_line(binary(name))}" for name in COMMANDS]
    return "\n".join(
        [
            "knnprompt <command> --option=value ...",
            "",
            *told,
            "",
            "knnprompt <command> --help lists a command's options.",
        ]
    )


def _run(path: pathlib.Path) -> None:
    """Runs a file as Python would, but for sys.argv, which stays."""
    loader = importlib.machinery.SourceFileLoader("__main__", str(path))
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("__main__", loader, origin=str(path)))
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    loader.exec_module(module)


def _folder(name: str) -> pathlib.Path:
    """A folder beside the package in the repository; in a wheel the package has it."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def _first_line(path: pathlib.Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def _with_config(argument: str) -> str:
    """--config=configs/NAME.py means the package's file, unless there is one of that name in the working folder."""
    given = re.fullmatch(r"(--?config=)configs/(\w+\.py)(:.*)?", argument)
    if not given or pathlib.Path("configs", given[2]).exists():
        return argument
    return f"{given[1]}{_folder('configs') / given[2]}{given[3] or ''}"
