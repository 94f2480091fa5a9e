"""SmolLM3: a Llama without positions in every fourth layer."""

import functools

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, llama_like, rotary


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    for meaningless in ("max_window_layers", "pretraining_tp"):  # Left over from Qwen2 and Llama.
        hf.value(meaningless)
    layers, interval = hf.size("num_hidden_layers"), hf.size("no_rope_layer_interval", 4)
    turned = hf.per_layer("no_rope_layers", layers, (0, 1)) or [
        int((layer + 1) % interval != 0) for layer in range(layers)
    ]
    (table,), context = llama_like.rope_of(hf, 2e6)
    still = rotary.Frequencies((0.0,) * len(table.radians))
    return llama_like.config_from_hf(
        hf,
        "smollm3",
        rope=((table, still), context),
        rotary_of_layer=tuple(0 if turns else 1 for turns in turned),
        windows=llama_like.switched_windows(hf, [llama_like.FULL if turns else llama_like.SLIDING for turns in turned]),
        **llama_like.attention_biases(hf),
        mlp_bias=hf.switch("mlp_bias", False),
        tied_head=hf.switch("tie_word_embeddings", True),
    )


_shape = functools.partial(llama_like.shape, "smollm3", rms_norm_eps=1e-6, rope_theta=5e6)
PUBLISHED = {"HuggingFaceTB/SmolLM3-3B-Base": _shape(2048, 36, 16, 4, 11008, 128256, 65536)}
TABLE = llama_like.TABLE
