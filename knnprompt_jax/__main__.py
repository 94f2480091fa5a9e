"""`python -m knnprompt_jax` is `knnprompt`."""

from knnprompt_jax import console

if __name__ == "__main__":
    console.main()
