#!/bin/bash
# Install this package on every host of a TPU slice, check the chips, and compare methods on all of them.
#
#     TPU=my-slice ZONE=us-west4-a bash examples/tpu_slice.sh
#     TPU=my-slice ZONE=us-west4-a MODEL=facebook/opt-30b MESH=8 bash examples/tpu_slice.sh
#
# It runs on your machine, in the folder of this package, and needs gcloud. The same command starts on every host
# (--worker=all), and JAX learns of the others from the TPU. Each host downloads the model. Process 0 prints and writes:
# the last command copies its records here. It has run only in two processes on CPUs, with MODEL=tiny.
#
# Output to expect, with other numbers:
#
#> search: dense, kl, 211 anchors, 512 MiB, against float64, nats              3.02e-05   0.0001    pass
#> meshes: 1 data × 2 model, states against one CPU, nats                      3.78e-06   0.0002    pass
#> kNN Prompting

set -euo pipefail
MODEL=${MODEL:-gpt2-xl}
MESH=${MESH:-0}  # Chips per copy of the weights; 0: the fewest that suffice.
SHOTS=${SHOTS:-32}
FOLDER=${FOLDER:-knnprompt_jax}
OUTPUT=${OUTPUT:-records}

on_all_hosts() {
    gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all --command="cd $FOLDER && $1"
}

# 1. Install.
gcloud compute tpus tpu-vm scp --recurse --zone="$ZONE" --worker=all . "$TPU:$FOLDER"
on_all_hosts "pip install --quiet --editable '.[tpu]'"

# 2. The chips compute what CPUs compute. A line with FAIL ends the script.
on_all_hosts "python experiments/check.py --quick --model=$MODEL --output=$OUTPUT --distributed.auto"

# 3. Compare methods, without a cache, so that a run with another MESH tests that mesh.
on_all_hosts "python experiments/compare.py --model=$MODEL --dtype=bfloat16 --shots=$SHOTS --seeds=1 --mesh.model=$MESH \
    --cache_gb=0 --output=$OUTPUT --distributed.auto"
gcloud compute tpus tpu-vm scp --recurse --zone="$ZONE" --worker=0 "$TPU:$FOLDER/$OUTPUT" .
