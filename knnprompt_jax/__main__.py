"""Runs the command `knnprompt` as `python -m knnprompt_jax`."""

from knnprompt_jax.cli import console

if __name__ == "__main__":
    console.main()
