"""The packages of the wheel; pyproject.toml has everything else, README.md the two commands."""

import setuptools

# The command `knnprompt` finds the binaries and their configs in the package.
BESIDE = {f"knnprompt_jax.{folder}": folder for folder in ("experiments", "configs")}

setuptools.setup(
    packages=[*setuptools.find_packages(include=["knnprompt_jax", "knnprompt_jax.*"]), *BESIDE],
    package_dir=BESIDE,
    package_data={
        "knnprompt_jax": [
            "py.typed",
            "demo/task/*",
            "demo/model/*",
            "tasks/published/*",
            "models/families/*.json",
            "report/*.json",
            "report/page/*",
        ]
    },
)
