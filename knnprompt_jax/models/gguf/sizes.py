"""What most architectures of GGUF files have in common, in the keys of config.json."""

from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import rope as gguf_rope
from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

Json = dict[str, Any]


def tokens(fields: gguf_fields.Fields) -> Json:
    values = gguf_fields.of_tokenizer(fields.header)
    return {f"{role}_token_id": values.value(gguf_vocabulary.ROLES[role]) for role in ("bos", "eos", "pad")}


def vocabulary(fields: gguf_fields.Fields) -> Json:
    """Its size is that of the embeddings, padding included; a file without a head uses them as head."""
    tensors = fields.header.tensors
    if "token_embd.weight" not in tensors:
        raise errors.UserError(f"{fields.header.file}: no tensor token_embd.weight")
    rows, *columns = tensors["token_embd.weight"].shape
    if columns != [fields.size("embedding_length")]:
        raise fields.wrong("embedding_length", f"{fields.size('embedding_length')}, and token_embd has {columns}")
    return {"vocab_size": rows, "tie_word_embeddings": "output.weight" not in tensors}


def sizes(fields: gguf_fields.Fields) -> Json:
    return vocabulary(fields) | {
        "hidden_size": fields.size("embedding_length"),
        "intermediate_size": fields.size("feed_forward_length"),
        "num_hidden_layers": gguf_fields.num_layers(fields),
        "num_attention_heads": fields.size("attention.head_count"),
        "max_position_embeddings": fields.size("context_length"),
    }


def rms_sizes(fields: gguf_fields.Fields) -> Json:
    """What every architecture with RMSNorm and grouped heads has."""
    if not fields.switch("attention.causal", True):
        raise fields.wrong("attention.causal", "only causal attention is supported")
    return sizes(fields) | {
        "num_key_value_heads": fields.size("attention.head_count_kv", fields.size("attention.head_count")),
        "rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number("rope.freq_base", gguf_rope.DEFAULT_THETA),
    }


def head_size(fields: gguf_fields.Fields) -> int:
    shared = fields.size("embedding_length") // fields.size("attention.head_count")
    size = fields.size("attention.key_length", max(1, shared))
    if fields.size("attention.value_length", size) != size:
        raise fields.wrong("attention.value_length", f"only that of the keys, {size}, is supported")
    return size


def require_width_per_head(fields: gguf_fields.Fields) -> None:
    """For the models whose config.json cannot say otherwise."""
    if head_size(fields) * fields.size("attention.head_count") != fields.size("embedding_length"):
        raise fields.wrong("attention.key_length", "only the width divided by the heads is supported")


def whole_rotary(fields: gguf_fields.Fields, says_head_size: bool = True) -> Json:
    """With rotary positions over the whole head; `says_head_size`: config.json says how large a head is."""
    if not says_head_size:
        require_width_per_head(fields)
    head = head_size(fields)
    if gguf_rope.share(fields, head) != 1:
        raise fields.wrong("rope.dimension_count", f"only the head's {head} values are supported")
    return rms_sizes(fields) | ({"head_dim": head} if says_head_size else {}) | gguf_rope.scaling(fields)


def has(fields: gguf_fields.Fields, name: str) -> bool:
    """Whether the layers have a tensor of that name."""
    return f"blk.0.{name}" in fields.header.tensors
