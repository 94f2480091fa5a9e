"""Train a small GPT-2 and its tokenizer from text files. The shipped model "tiny" was made with this script.

    python -m tools.pretrain_tiny --text=corpus/ --output=checkpoints/tiny --steps=1200 --decay=0.3

The script does the following:

1. It reads .txt and .txt.gz files. A line <|endoftext|> or the end of a file ends a document.
   The last of every hundred documents is held out to measure the loss.
2. It trains a byte-level BPE tokenizer.
3. It trains a GPT-2 with AdamW (optax): linear warm-up, constant rate, linear decay to zero.
   Orbax saves a checkpoint every `--checkpoint_every` steps. The same command resumes an interrupted run.
4. It writes OUTPUT/model, a folder that `transformers` and `--model=OUTPUT/model` load.
   OUTPUT/log.jsonl has a line of losses every `--evaluate_every` steps.

The defaults train the 5 layers of width 256 of "tiny". On two CPU cores 1,200 steps take a few hours.
"""

import argparse
import functools
import glob
import gzip
import hashlib
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tokenizers
import transformers
from flax import nnx
from tokenizers import decoders, models, pre_tokenizers, trainers

from knnprompt_jax.common import errors, files
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.study import sequence_classifier as training
from tools import export_model

END_OF_TEXT = "<|endoftext|>"
HELD_OUT_EVERY = 100  # The last of every hundred documents measures the loss.
DTYPES = {"float16": jnp.float16, "bfloat16": jnp.bfloat16, "float32": jnp.float32}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--text", required=True, help="comma-separated .txt or .txt.gz files, folders of them, or glob patterns")
    add("--output", required=True, help="folder of the checkpoints, log.jsonl and model/")
    add("--vocab_size", type=int, default=5120, help="tokens of the vocabulary, at least 257")
    add("--width", type=int, default=256, help="width of the blocks, a multiple of heads")
    add("--layers", type=int, default=5)
    add("--heads", type=int, default=4)
    add("--context", type=int, default=1024, help="context length in tokens")
    add("--steps", type=int, default=2000, help="optimizer steps")
    add("--batch", type=int, default=4, help="sequences of `context` tokens per step")
    add("--learning_rate", type=float, default=2e-3, help="rate between warm-up and decay")
    add("--warmup", type=int, default=100, help="steps over which the rate rises from zero")
    add("--decay", type=float, default=0.25, help="share of the steps over which the rate falls to zero at the end")
    add("--weight_decay", type=float, default=0.1, help="weight decay of everything but biases and norms")
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--seed", type=int, default=0, help="seed of the initial weights and of the order of documents")
    add("--evaluate_every", type=int, default=100, help="steps between lines of the log")
    add("--checkpoint_every", type=int, default=50, help="steps between checkpoints")
    add("--export_dtype", choices=DTYPES, default="float16", help="dtype of the exported weights")
    options = parser.parse_args(arguments)
    if options.width % options.heads:
        raise errors.UserError(f"--heads={options.heads} does not divide --width={options.width}")
    if options.vocab_size < 257:
        raise errors.UserError(f"--vocab_size={options.vocab_size}: choose at least 257 (256 bytes and {END_OF_TEXT})")
    return options


def run(options: argparse.Namespace) -> dict[str, float]:
    """Train, or resume training, and export the model; return the held-out loss (nats per token) and its perplexity."""
    folder = pathlib.Path(options.output)
    documents = list(read_documents(find_files(options.text.split(","))))
    held_out = documents[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    del documents[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    folder.mkdir(parents=True, exist_ok=True)
    with files.lock(folder):
        path = folder / "bpe.json"
        if not path.exists():
            with files.new_file(path) as unfinished:
                train_tokenizer(documents, options.vocab_size).save(str(unfinished))
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        if tokenizer.get_vocab_size() != options.vocab_size:
            raise errors.UserError(
                f"{path}: has {tokenizer.get_vocab_size()} tokens instead of {options.vocab_size}: "
                "choose another --output, a smaller --vocab_size or more text"
            )
        held_out_tokens = encode(tokenizer, held_out)
        model = train(options, folder, encode(tokenizer, documents), held_out_tokens)
        export(folder / "model", model, tokenizer, options.export_dtype)
    loss = evaluate(model, held_out_tokens, options)
    return {"held_out_loss": loss, "held_out_perplexity": math.exp(loss)}


def find_files(patterns: Sequence[str]) -> list[pathlib.Path]:
    """Return the files that the names, folders and glob patterns stand for, sorted within each."""
    found: list[pathlib.Path] = []
    for pattern in patterns:
        folder = pathlib.Path(pattern)
        matches = sorted(folder.glob("*.txt*") if folder.is_dir() else map(pathlib.Path, glob.glob(pattern)))
        if not matches:
            raise errors.UserError(f"--text={pattern}: no .txt or .txt.gz file found")
        found += matches
    return found


def read_documents(paths: Sequence[pathlib.Path]) -> Iterator[str]:
    """Yield the documents of UTF-8 text files."""
    for path in paths:
        lines: list[str] = []
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line in file:
                if line.strip() != END_OF_TEXT:
                    lines.append(line)
                    continue
                yield "".join(lines).strip()
                lines = []
        if lines:
            yield "".join(lines).strip()


def train_tokenizer(documents: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE tokenizer: 256 bytes, merges, and the end-of-text token last, as in GPT-2."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def encode(tokenizer: tokenizers.Tokenizer, documents: Sequence[str]) -> list[np.ndarray]:
    """Return the token ids of each document, each followed by the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    return [np.array([*encoding.ids, end], np.int32) for encoding in tokenizer.encode_batch(list(documents))]


def blocks(documents: Sequence[np.ndarray], length: int, seed: int, epoch: int) -> np.ndarray:
    """Return an epoch's blocks [n, length + 1]: documents in a shuffled order, joined and cut; the rest is dropped."""
    if not documents:
        raise errors.UserError(f"--text has too few documents: one of every {HELD_OUT_EVERY} is held out")
    order = np.random.default_rng([seed, epoch]).permutation(len(documents))
    joined = np.concatenate([documents[index] for index in order])
    count = (len(joined) - 1) // length
    if not count:
        raise errors.UserError(f"the text has {len(joined)} tokens: add text or choose --context < {len(joined)}")
    return np.lib.stride_tricks.sliding_window_view(joined, length + 1)[: count * length : length]


def batches(documents: Sequence[np.ndarray], options: argparse.Namespace, start: int) -> Iterator[np.ndarray]:
    """Yield batches [batch, context + 1] without end, from batch number `start` on."""
    per_epoch = len(blocks(documents, options.context, options.seed, 0)) // options.batch
    if not per_epoch:
        raise errors.UserError(f"the text has fewer than {options.batch} blocks: add text or choose a smaller --batch")
    epoch, skipped = divmod(start, per_epoch)
    while True:
        shuffled = blocks(documents, options.context, options.seed, epoch)
        yield from np.split(shuffled[skipped * options.batch : per_epoch * options.batch], per_epoch - skipped)
        epoch += 1
        skipped = 0


def make_optimizer(options: argparse.Namespace) -> optax.GradientTransformation:
    """Return AdamW with clipped gradients and the schedule of the options."""
    decay_steps = max(1, round(options.steps * options.decay))
    parts = [
        optax.linear_schedule(0.0, options.learning_rate, options.warmup),
        optax.constant_schedule(options.learning_rate),
        optax.linear_schedule(options.learning_rate, 0.0, decay_steps),
    ]
    schedule = optax.join_schedules(parts, [options.warmup, options.steps - decay_steps])
    adamw = optax.adamw(schedule, b1=0.9, b2=0.95, weight_decay=options.weight_decay, mask=training.decays)
    return optax.chain(optax.clip_by_global_norm(options.clip), adamw)


def token_losses(model: decoder.Decoder, tokens_BT: jax.Array) -> jax.Array:
    """Return each sequence's mean cross-entropy [B] in nats. Only one sequence's logits exist at a time."""
    hidden_BTE = model(tokens_BT[:, :-1])

    @jax.checkpoint
    def loss(hidden_and_targets: tuple[jax.Array, jax.Array]) -> jax.Array:
        hidden_TE, target_T = hidden_and_targets
        return optax.softmax_cross_entropy_with_integer_labels(model.head.logits(hidden_TE), target_T).mean()

    return jax.lax.map(loss, (hidden_BTE, tokens_BT[:, 1:]))


def train(
    options: argparse.Namespace,
    folder: pathlib.Path,
    documents: Sequence[np.ndarray],
    held_out: Sequence[np.ndarray],
) -> decoder.Decoder:
    """Train a decoder on documents, from the folder's newest checkpoint if there is one, and log to log.jsonl."""
    sizes = {"n_embd": options.width, "n_layer": options.layers, "n_head": options.heads}
    sizes |= {"vocab_size": options.vocab_size, "n_positions": options.context}
    config = registry.config_from_hf({"model_type": "gpt2", **sizes})
    graph, params = nnx.split(decoder.Decoder(config, nnx.Rngs(options.seed)))
    optimizer = make_optimizer(options)
    run = [json.dumps(sizes | {"seed": options.seed}).encode(), *(tokens.tobytes() for tokens in documents)]
    digest = hashlib.sha256(b"".join(run)).hexdigest()[:16]
    state = training.Training(params, optimizer.init(params), folder / f"checkpoint-{digest}")
    tokens = batches(documents, options, state.step)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def descend(params: nnx.State, state: optax.OptState, tokens_BT: jax.Array) -> training.Updated:
        def mean_loss(params: nnx.State) -> jax.Array:
            return token_losses(nnx.merge(graph, params), tokens_BT).mean()

        loss, gradients = jax.value_and_grad(mean_loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    def update(step: int, params: nnx.State, state: optax.OptState) -> training.Updated:
        return descend(params, state, next(tokens))

    started = time.monotonic()
    first_step = state.step
    tokens_per_step = options.batch * options.context
    losses = []
    for loss in state.steps(update, options.steps, options.checkpoint_every):
        losses.append(loss)
        if state.step % options.evaluate_every == 0 or state.step == options.steps:
            elapsed = time.monotonic() - started
            line = {
                "step": state.step,
                "tokens": state.step * tokens_per_step,
                "loss": round(float(np.mean(losses)), 4),
                "held_out_loss": round(evaluate(nnx.merge(graph, state.params), held_out, options), 4),
                "tokens_per_second": round((state.step - first_step) * tokens_per_step / elapsed),
            }
            print(json.dumps(line), flush=True)
            with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            losses = []
    return nnx.merge(graph, state.params)


def evaluate(model: decoder.Decoder, held_out: Sequence[np.ndarray], options: argparse.Namespace) -> float:
    """Return the mean cross-entropy on held-out documents, in nats per token."""
    tokens = blocks(held_out, options.context, seed=0, epoch=0)
    count = max(1, len(tokens) // options.batch)
    parts = np.split(tokens[: max(options.batch, count * options.batch)], count)
    return float(np.mean([_losses(model, part) for part in parts]))


_losses = jax.jit(token_losses)


def export(folder: pathlib.Path, model: decoder.Decoder, tokenizer: tokenizers.Tokenizer, dtype: str) -> None:
    """Write config.json, model.safetensors in `dtype` and the tokenizer files: a folder that `transformers` loads."""
    config = model.config
    end = tokenizer.token_to_id(END_OF_TEXT)
    hf = {
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.num_positions,
        "n_embd": config.width,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.mlp_width,
        "activation_function": config.activation,
        "layer_norm_epsilon": config.norm_epsilon,
        "bos_token_id": end,
        "eos_token_id": end,
    }
    export_model.save(folder, model, hf, DTYPES[dtype])
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=config.num_positions, **special
    )
    fast.save_pretrained(folder)


if __name__ == "__main__":
    try:
        print(json.dumps(run(parse(sys.argv[1:]))))
    except errors.UserError as error:
        sys.exit(f"error: {error}")
