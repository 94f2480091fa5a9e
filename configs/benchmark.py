"""Times building and searching a datastore, with random weights of a published shape or with a GGUF file's own.

    python experiments/benchmark.py                                    # GPT-2 small, drawn lengths; some minutes on 2 CPU cores
    python experiments/benchmark.py --config.mode=construction --config.task=trec --config.data_dir=data \
        --config.tokenizer=tokenizers/gpt2 --config.restore_dropped --config.anchors=0    # TREC's whole anchor set
    python experiments/benchmark.py --config.mode=construction --config.gguf=smollm2 --config.llama_python=llama/bin/python \
        --config.task=trec --config.data_dir=data --config.restore_dropped --config.anchors=0   # beside llama.cpp on the same file
    python experiments/benchmark.py --config.mode=construction --config.model_shape=opt-6.7b --config.dtype=bfloat16 \
        --config.anchors=0 --config.peers="('jax_one','jax_batched')"  # one GPU

PyTorch peers share the device: on a GPU, start with XLA_PYTHON_CLIENT_PREALLOCATE=false to leave them room.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.mode = "all"  # construction, search, growth or all.
    config.model_shape = "gpt2"  # A published size of any family, say opt-6.7b, Llama-3.2-1B, Qwen3-0.6B or gemma-2-2b.
    # Sizes that replace the shape's; 0: its own. MLPs keep their width per width of the blocks, keys and values the number of
    # query heads that share them.
    config.width = 0
    config.layers = 0
    config.heads = 0
    config.head_size = 0  # In families where heads need not share the width: Qwen3, Gemma and those like Llama.
    config.vocab_size = 0
    # Instead of a shape with random weights: a GGUF file by its path, or "smollm2" for the packaged one.
    config.gguf = ""
    config.dtype = "float32"  # float32 or bfloat16.
    config.batch = 0  # Packed tokens that go through the model at a time, in each data shard; 0: what suits the device.
    config.mesh = ml_collections.ConfigDict()
    config.mesh.data = (
        0  # Devices that rows of prompts are split over; 0: all / mesh.model. The peers make no use of it.
    )
    config.mesh.model = 1  # Devices that the weights are split over.

    config.task = ""  # A task's prompts; empty: random tokens of drawn lengths.
    config.data_dir = ""  # The task's rows, at <data_dir>/<task>/train.jsonl.
    config.restore_dropped = False  # Put train_dropped.jsonl back: the train file as published.
    config.tokenizer = ""  # A folder with the model's tokenizer; empty: the GGUF file's.
    config.shots = 1024  # Train rows a class ...
    config.demo_shots = 8  # ... of which so many are demonstrations.
    config.seed = 1
    config.anchors = 256  # Prompts a turn; 0: the task's whole anchor set, or 1,024 drawn ones.
    config.prefix_tokens = 614  # Without a task: tokens of the demonstrations ...
    config.suffix_tokens = 29.4  # ... and of a suffix, on average. (Both are MR's with 8 demonstrations a class.)

    config.repetitions = 3  # Rounds in which everything compared has one timed turn.
    config.ceiling_side = 0  # Side of the square matrices by which the device's peak is measured; 0: what suits it.
    # torch_… where torch is installed, llama_cached where there are a GGUF file and llama-cpp-python.
    config.peers = ("jax_one", "jax_batched", "torch_one", "torch_cached", "llama_cached")
    config.peer_prompts = 8  # Whole prompts that peers without a shared prefix read per turn.
    config.peer_suffixes = 128  # Suffixes that peers with a cached prefix read per turn.
    config.peer_batch = 32  # Prompts per batch of theirs.
    # Whole prompts whose log-probabilities are compared with PyTorch's, beside batches; 0: nothing is compared, and PyTorch has
    # random weights of its own (those of a GGUF file it has always).
    config.agreement = 4
    config.llama_python = (
        ""  # Path of a Python that has llama-cpp-python; empty: this one. JAX and PyTorch are not needed there.
    )
    config.llama_threads = 0  # Threads of llama.cpp; 0: one per core.

    config.kinds = ("dense", "factored")  # Datastores to search.
    config.direction = "forward"  # forward or released KL.
    config.queries = (1, 256)
    config.k = 3
    config.max_store_gb = 1.0  # Stores grow by fours from 1,024 anchors to this size ...
    config.max_anchors = 65536  # ... or this number.

    config.growth_anchors = (128, 512)  # Sizes of the datastore; (1024, 4096, 16384, 65536) takes hours on a CPU.
    config.growth_prefixes = (0, 448, 896)  # Tokens of the demonstrations; up to 1,900 for OPT's context.

    config.output = "results"  # Folder of the JSON file.
    return config
