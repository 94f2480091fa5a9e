"""Which k, representation, direction and number of demonstrations to take, from the train rows alone.

    python experiments/tune.py                                # the shipped model and task, offline
    python experiments/tune.py --config.model=gpt2-xl --config.task=my_task.yaml --config.train_file=train.csv

Every train row that is no demonstration is classified by all others. Every option can be given on the command line as
--config.<option>=<value>.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.model = "smollm2"  # smollm2, tiny, a Hub name (gpt2-xl, owner/name:file.gguf), a folder or a .gguf file.
    config.revision = ""  # Branch, tag or commit on the Hub.
    config.dtype = "float32"  # float32, the reference, or bfloat16, for accelerators.
    config.batch = 0  # Packed tokens that go through the model at a time, in each data shard; 0: what suits the device.
    config.mesh = ml_collections.ConfigDict()
    config.mesh.data = 0  # Devices that rows of prompts are split over; 0: all / mesh.model.
    config.mesh.model = 1  # Devices that each copy of the weights is split over; divides the model's heads.

    config.task = "demo"  # A task by name, or a file that declares one: my_task.yaml.
    config.data_dir = ""  # Train rows at <data_dir>/<task>/train.jsonl, or ...
    config.train_file = ""  # ... in a CSV, TSV, JSONL or Parquet file, or ...
    config.hub = False  # ... on the Hugging Face Hub.
    config.encoding = "utf-8"  # Of train_file.
    config.restore_dropped = False  # Put train_dropped.jsonl back: the train file as published.

    config.demo_shots = (
        -1,
    )  # Demonstrations per class, a pass each; -1: M_T, what the context holds, or 2 in long ones.
    config.k = (1, 3, 5, 7, 9, 15, 25, 51)  # Neighbours to try.
    config.tie_break = "lowest"  # Equal votes: lowest class index, or nearest neighbour.
    config.truncation = "left"  # Of prompts longer than the context: left (as published) or error.
    config.label_token = "last"  # The token of a label word by which its class is read: last or first.
    config.seed = 0  # Of the draw of demonstrations.
    return config
