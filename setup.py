"""The packages of the wheel; pyproject.toml has everything else, README.md the two commands."""

import setuptools

# The command `knnprompt` finds the binaries and their configs in the package.
BESIDE = {f"knnprompt_jax.{folder}": folder for folder in ("experiments", "configs")}

setuptools.setup(
    # An editable install is a path in a .pth file. The default is a finder, which Python asks after the folders of
    # `sys.path`: beside a clone of this name, it would import the clone's folder instead of the package in it.
    options={"editable_wheel": {"mode": "compat"}},
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
