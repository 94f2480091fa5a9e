"""Programs in processes of their own, on CPUs."""

import os
import pathlib
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Compiling takes most of the time of the tests' small programs. `test_optimized_programs_predict_the_same` compiles as
# users do.
COMPILE_QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)


def start(*command: Any, cwd: pathlib.Path = ROOT, devices: int = 0, **streams: Any) -> subprocess.Popen:
    """Start Python with these arguments and, if given, a forced number of CPU devices; its streams are pipes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    if devices:
        environment["XLA_FLAGS"] = f"{COMPILE_QUICKLY} --xla_force_host_platform_device_count={devices}"
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {"text": True} | streams
    return subprocess.Popen([sys.executable, *map(str, command)], cwd=cwd, env=environment, **streams)


def finish(process: subprocess.Popen, status: int = 0) -> tuple[str, str]:
    """Return what a process prints on its standard output and error; check its exit status."""
    out, error = process.communicate()
    assert process.returncode == status, (out, error)
    return out, error


def run(*command: Any, status: int = 0, **options: Any) -> tuple[str, str]:
    """Run Python with these arguments and return what it prints."""
    return finish(start(*command, **options), status)


def predict_in_small_batches(characters: int) -> tuple[str, str]:
    """Return the arguments of Python that start `predict` with batches of about this size."""
    code = (
        "import runpy; from knnprompt_jax.commands import unlabelled; "
        f"unlabelled.batch_characters = lambda model: {characters}; "
        "runpy.run_path('experiments/predict.py', run_name='__main__')"
    )
    return "-c", code
