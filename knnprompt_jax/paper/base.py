"""What the configs of all tables and figures share: the paper's tasks, models and seeds, and every option with its default."""

import ml_collections

from knnprompt_jax.methods import registry
from knnprompt_jax.tasks import catalogue

TEN_TASKS = ",".join(catalogue.PAPER_TASKS)
SIX_TASKS = "sst2,subj,mpqa,cr,mr,trec"  # Those with M_T ≥ 8 in 1,024 tokens.
BINARY_TASKS = "sst2,subj,mpqa,cr,mr"
GPT2_XL = "gpt2-xl"
SIX_MODELS = "gpt2-large,gpt2-xl,facebook/opt-2.7b,facebook/opt-6.7b,facebook/opt-13b,facebook/opt-30b"
FEW_SHOTS = (2, 4, 8, 16, 32)
SHOTS = (32, 64, 128, 256, 512, 1024)
FIVE_SEEDS, TEN_SEEDS = tuple(range(1, 6)), tuple(range(1, 11))


def get_config(experiment: str) -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.experiment = experiment
    config.tasks = TEN_TASKS  # Names with commas between them.
    config.models = GPT2_XL  # With commas: Hub names, folders, .gguf files, smollm2, tiny.
    config.methods = "icl,knn"  # Names with commas between them.
    config.shots = SHOTS  # Train rows a class, m.
    config.few_shots = ()  # More of them, in the few-shot regime.
    config.seeds = FIVE_SEEDS
    config.regime = "full"  # full: |D| = M_T. few-shot: |D| = 1 where there are anchors, all m shots elsewhere.
    config.direction = "released"  # KL(anchor ‖ test), which made the published numbers; forward: Eq. 5.
    config.rows = 0  # Only so many rows to classify, the first of the split; 0: all.
    config.shard = "1/1"  # Which part of the passes to run, of how many: 3/8 is the third of eight.
    config.output = "results"  # Folder of the records; each experiment has its own in it.

    config.data_dir = ""  # Rows at <data_dir>/<task>/{train,dev_subsample,test}.jsonl.
    config.hub = False  # Rows from the Hugging Face Hub instead.
    config.split = "dev_subsample"  # The rows to classify.
    config.restore_dropped = True  # Put train_dropped.jsonl back: the train file as published.
    config.drop_duplicates = False  # Leave out train rows that repeat, contradict each other or are test rows.
    config.label_token = "last"  # The token by which a label word is read: last (released code) or first (paper).

    config.revision = ""  # Branch, tag or commit on the Hub.
    config.dtype = "float32"  # float32, the reference, or bfloat16, for accelerators.
    config.batch = 0  # Packed tokens that go through the model at a time, in each data shard; 0: what suits the device.
    config.mesh, config.distributed = ml_collections.ConfigDict(), ml_collections.ConfigDict()
    config.mesh.data = 0  # Devices that rows of prompts are split over; 0: all / mesh.model.
    config.mesh.model = 1  # Devices that each copy of the weights is split over; divides the model's heads.
    config.distributed.auto = False  # Several processes, found through Slurm, Open MPI or the TPU's own records; or ...
    config.distributed.address = ""  # ... host:port of process 0, ...
    config.distributed.num_processes = 0  # ... how many there are ...
    config.distributed.process_id = 0  # ... and which one this is, from 0.

    # The options of every method, by its name: --config.options.noisy_channel.template=1. The direction is above.
    config.options = {name: _options(name) for name in registry.METHODS}
    return config


def _options(name: str) -> dict[str, object]:
    return {key: value for key, value in registry.METHODS[name].options.items() if key != "direction"}
