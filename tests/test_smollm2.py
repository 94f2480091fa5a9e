"""With SmolLM2's real weights, log-probabilities equal PyTorch's on the same GGUF file."""

import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
import transformers  # noqa: E402

from knnprompt_jax.datastore import distances  # noqa: E402
from knnprompt_jax.inference import lm  # noqa: E402
from knnprompt_jax.inference import states as states_lib  # noqa: E402
from knnprompt_jax.inference.prompts import layout  # noqa: E402
from knnprompt_jax.models import hub  # noqa: E402
from knnprompt_jax.tasks import catalogue  # noqa: E402
from tests import prompt_groups  # noqa: E402

TASK = catalogue.get("demo")


@pytest.fixture
def theirs(tmp_path) -> transformers.PreTrainedModel:
    """Return the model as `transformers` reads the file, in float32."""
    torch.set_num_threads(1)  # Other tests run at the same time, and waiting threads spin.
    shutil.copy(hub.locate("smollm2"), tmp_path / "model.gguf")
    options = {"gguf_file": "model.gguf", "dtype": torch.float32, "local_files_only": True}
    return transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **options).eval()


def test_log_probabilities_of_real_prompts(theirs):
    """Three prompts of about 50, 450 and 900 tokens; theirs are normalised in float64."""
    ours, train = lm.LanguageModel.from_pretrained("smollm2"), catalogue.load_rows(TASK, "train")
    counts, queries = (0, 13, 26), catalogue.load_rows(TASK, "dev_subsample")[:21:7]
    heads = [layout.demonstration_text(TASK, train[:count]) for count in counts]
    prompts = ours.tokenize([head + TASK.render(query) for head, query in zip(heads, queries, strict=True)])
    assert min(map(len, prompts)) < 60 and max(map(len, prompts)) > 800
    states = states_lib.read(ours, prompt_groups.make(prompts))
    got_NV = np.asarray(distances.log_probabilities(ours.head, states))
    with torch.inference_mode():
        logits = [theirs(torch.tensor([tokens]), logits_to_keep=1).logits[0, -1].double() for tokens in prompts]
    want_NV = torch.stack(logits).log_softmax(-1).numpy()
    assert np.abs(got_NV - want_NV).max() < 2e-4
