"""GPT-NeoX and Pythia: attention and MLP side by side, LayerNorm, rotary positions on a quarter of the head, biases."""

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, hf_config, layers, names, rope_config
from knnprompt_jax.models.conversion import NameRule


def config_from_hf(hf: hf_config.Fields) -> config_lib.DecoderConfig:
    width = hf.size("hidden_size")
    heads = hf.divisor("num_attention_heads", width)
    parameters = rope_config.parameters(hf, 1e4, 0.25, ("rotary_emb_base", "rotary_pct"))
    table, context = rope_config.frequencies(parameters, width // heads, hf.size("max_position_embeddings"))
    bias = hf.switch("attention_bias", True)
    hf.value("is_decoder")  # It always is a decoder.
    return config_lib.DecoderConfig.of_equal_heads(
        family="gpt_neox",
        vocab_size=hf.size("vocab_size"),
        width=width,
        num_layers=hf.size("num_hidden_layers"),
        num_heads=heads,
        mlp_width=hf.size("intermediate_size"),
        num_positions=context,
        position_table=False,
        rotary=(table,),
        activation=hf.choice("hidden_act", "gelu", layers.ACTIVATIONS),
        parallel_residual=hf.switch("use_parallel_residual", True),
        norm_epsilon=hf.number("layer_norm_eps", 1e-5),
        qkv_bias=bias,
        out_bias=bias,
        tied_head=hf.switch("tie_word_embeddings", False),
    )


def _published(width: int, num_layers: int, num_heads: int, vocab: int = 50304) -> hf_config.Json:
    sizes = {"hidden_size": width, "num_hidden_layers": num_layers, "num_attention_heads": num_heads}
    sizes |= {"intermediate_size": 4 * width, "vocab_size": vocab, "max_position_embeddings": 2048}
    return {"model_type": "gpt_neox", **sizes, "rotary_pct": 0.25}


PUBLISHED = {
    "EleutherAI/pythia-70m": _published(512, 6, 8),
    "EleutherAI/pythia-160m": _published(768, 12, 12),
    "EleutherAI/pythia-410m": _published(1024, 24, 16),
    "EleutherAI/pythia-1b": _published(2048, 16, 8),
    "EleutherAI/pythia-1.4b": _published(2048, 24, 16),
    "EleutherAI/pythia-2.8b": _published(2560, 32, 32),
    "EleutherAI/pythia-6.9b": _published(4096, 32, 32, 50432),
    "EleutherAI/pythia-12b": _published(5120, 36, 40, 50688),
}

_LAYER = "layers.{layer}."
TABLE = conversion.NameTable(
    prefixes=("gpt_neox.",),
    buffers=r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
    endings={"lm_head.weight": "embed_out.weight"},  # What `transformers` calls the head in memory.
    rules=(
        NameRule("embed_in.weight", "tokens", "v e -> v e"),
        *names.norm(_LAYER + "input_layernorm", "blocks.attention_norm"),
        # Query, key and value of each head, head by head.
        *names.fused_attention(_LAYER + "attention.query_key_value", "(h j k) d -> d j h k", ("1", "1", "1")),
        *names.dense(_LAYER + "attention.dense", "blocks.attention.out", "d (h k) -> h k d"),
        *names.norm(_LAYER + "post_attention_layernorm", "blocks.mlp_norm"),
        *names.dense(_LAYER + "mlp.dense_h_to_4h", "blocks.mlp.up", "f d -> d f"),
        *names.dense(_LAYER + "mlp.dense_4h_to_h", "blocks.mlp.down", "d f -> f d"),
        *names.norm("final_layer_norm", "final_norm"),
        NameRule("embed_out.weight", "head_rows", "v e -> v e", prefixed=False),
    ),
)
