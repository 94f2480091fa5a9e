"""Builds the datastore of one seed and saves it: started again after a crash, it goes on after the last whole chunk of anchors.

    python experiments/build_datastore.py --config.store=stores/demo
    python experiments/build_datastore.py --config.store=stores/trec --config.model=gpt2-xl --config.task=trec \
        --config.data_dir=data --config.shots=1024 --config.datastore.kind=factored
    python experiments/knn_prompting.py --config.store=stores/demo "--config.seeds=(1,)"    # starts from it
    python experiments/build_datastore.py --config.store=stores/demo --config.append=more.csv
    python experiments/build_datastore.py --config.store=stores/demo "--config.remove_ids=(3, 17)"

Every option can be given on the command line as --config.<option>=<value>.
"""

import ml_collections

from knnprompt_jax.store import building


def get_config() -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.store = ""  # Folder to save the datastore in; its parent exists or is made.
    config.overwrite = False  # Replace another datastore, or a damaged one, in that folder.
    config.chunk = building.CHUNK  # Anchors after which what is finished is durable.
    config.append = ""  # Change the saved datastore: append the rows of this CSV, TSV, JSONL or Parquet file, and ...
    config.remove_ids = ()  # ... remove these ids: rows of the train file, from 0. No other anchor is computed.

    config.mesh, config.distributed, config.datastore = (ml_collections.ConfigDict() for _ in range(3))
    config.datastore.kind = "dense"  # dense: V log-probabilities an anchor; factored: E + 1 numbers for the same KL.
    config.datastore.key_dtype = "float32"  # float16, bfloat16: half as big; 3 %, 11 % of the 3 nearest may change.
    config.datastore.placement = "device"  # Where it is made: device, or host, for more anchors than devices hold.
    config.datastore.memory_mb = 512.0  # What the reported search may take on each device, in MB of 2**20 bytes.
    config.direction = "forward"  # forward, or released: factored anchors twice as big, which serve both directions.

    config.model = "smollm2"  # smollm2, tiny, a Hub name (gpt2-xl, owner/name:file.gguf), a folder or a .gguf file.
    config.revision = ""  # Branch, tag or commit on the Hub.
    config.dtype = "float32"  # float32, the reference, or bfloat16, for accelerators.
    config.batch = 0  # Packed tokens that go through the model at a time, in each data shard; 0: what suits the device.

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
    config.seeds = (1,)  # One seed: its demonstrations stand before every anchor.
    config.truncation = "left"  # Of prompts longer than the context: left (as published), error, or drop.
    config.label_token = "last"  # The token by which a label word is read: last (released code) or first (paper).
    return config
