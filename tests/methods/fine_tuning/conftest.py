"""Small random classifiers of `transformers` and ours with their weights."""

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def classifiers(tmp_path_factory) -> Callable:
    """`classifiers("bert")` or `("gpt2")`: PyTorch's model for sequence classification and a fresh copy of ours, 3 classes."""
    torch = pytest.importorskip("torch", reason="parity is with PyTorch")
    import jax
    import jax.numpy as jnp
    import transformers
    from flax import nnx

    from knnprompt_jax.methods.fine_tuning import classifier
    from knnprompt_jax.models import checkpoints, registry

    common = {"vocab_size": 53, "num_labels": 3, "initializer_range": 0.3, "pad_token_id": 0}
    bert = {"hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2, "intermediate_size": 41}
    gpt2 = {"n_embd": 35, "n_head": 5, "n_layer": 2, "n_inner": 41, "n_positions": 37}
    configs = {
        "bert": transformers.BertConfig(**common, **bert, max_position_embeddings=37),
        "gpt2": transformers.GPT2Config(**common, **gpt2),
    }
    places = {name: tmp_path_factory.mktemp(name) for name in configs}

    def make(name: str) -> tuple:
        torch.manual_seed(7)
        theirs = transformers.AutoModelForSequenceClassification.from_config(configs[name], attn_implementation="eager")
        theirs.eval().base_model.save_pretrained(places[name])
        config, folder = registry.describe(str(places[name]), families=(name,))
        # A copy: the trainer gives the weights' memory back.
        backbone = jax.tree.map(jnp.copy, checkpoints.load(folder, config, jnp.float32))
        ours = classifier.SequenceClassifier(backbone, 3, nnx.Rngs(0))
        head = theirs.classifier if name == "bert" else theirs.score
        ours.head_kernel[...] = jnp.asarray(head.weight.detach().numpy().T)
        return theirs, ours

    return make
