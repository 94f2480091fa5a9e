"""Any set of methods on the same splits: one table, and a JSON record a run and method.

    python experiments/compare.py                                     # every method that applies, offline
    python experiments/compare.py --config.methods=icl,knn,linear_probe --config.options.knn.k=5
    python experiments/compare.py --config.model=gpt2-xl --config.task=trec --config.data_dir=data --config.shots=128

Every option can be given on the command line as --config.<option>=<value>.
"""

import ml_collections

from knnprompt_jax.methods import registry


def get_config() -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.model = "smollm2"  # smollm2, tiny, a Hub name (gpt2-xl, owner/name:file.gguf), a folder or a .gguf file.
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

    config.task = "demo"  # demo, sst2, subj, mpqa, agnews, cb, cr, dbpedia, mr, rte, trec, sst5; my_task.yaml.
    config.data_dir = ""  # Rows at <data_dir>/<task>/{train,dev_subsample,test}.jsonl.
    config.train_file = ""  # Rows from CSV, TSV, JSONL or Parquet files instead: the train rows ...
    config.eval_file = ""  # ... and the rows to classify.
    config.encoding = "utf-8"  # Of these files.
    config.hub = False  # Rows from the Hugging Face Hub instead.
    config.split = "dev_subsample"  # The rows to classify.
    config.restore_dropped = False  # Put train_dropped.jsonl back: the train file as published.
    config.drop_duplicates = False  # Leave out train rows that repeat, contradict each other or are test rows.

    config.shots = 32  # Train rows a class.
    config.demo_shots = -1  # Of these, demonstrations per class; -1: M_T, what the context holds, or 2 in long ones.
    config.seeds = (1, 2, 3, 4, 5)
    config.truncation = "left"  # Of prompts longer than the context: left (as published), error, or drop.
    config.label_token = "last"  # The token by which a label word is read: last (released code) or first (paper).

    config.methods = "all"  # Names with commas between them (docs/methods.md lists them), or all that apply.
    config.options = registry.default_options()  # By method: --config.options.knn.k=5; docs/methods.md lists them.

    config.output = "results"  # Folder of the JSON records; each is written as soon as it is there.
    config.resume = False  # Skip what that folder has a record of by the same settings (all processes must see it).
    return config
