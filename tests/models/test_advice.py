"""What `transformers` says on standard error: nothing of PyTorch, which tokenizers do not need, and every other warning."""

import subprocess
import sys

SCRIPT = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.split(".")[0] == "torch" else find_spec(name, *rest)
from knnprompt_jax.models import shipped, tokenizers
print(len(tokenizers.load(shipped.locate("tiny"))))
import transformers
assert not transformers.utils.is_torch_available()
transformers.utils.logging.get_logger("transformers.tokenizers").warning("a real warning")
"""


def test_only_the_advice_about_pytorch_is_hidden():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "5120\n"
    assert "PyTorch" not in done.stderr and "a real warning" in done.stderr
