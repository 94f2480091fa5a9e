"""The classifier on engines of others predicts the same labels, and batches of a lost worker are redone."""

import io
import os
import pickle
import re
import signal
import subprocess
import sys

import pandas as pd
import pytest

import knnprompt_jax as kp
from examples import label_support_tickets, pandas_udf, reproduce_a_table
from tests import processes

TABLE = pd.DataFrame({"ticket": range(97), "sentence": [f"line {number**2} of many" for number in range(97)]})


@pytest.fixture(scope="module")
def predicted(demo_classifier):
    """The classifier's labels, by ticket."""
    return dict(zip(TABLE["ticket"], demo_classifier.predict(list(TABLE["sentence"])), strict=True))


def test_a_pandas_udf(demo_classifier, predicted):
    parts = [TABLE[:41], TABLE[41:]]
    labelled = pd.concat(pandas_udf.label(pickle.dumps(demo_classifier), iter(parts)))
    assert dict(zip(labelled["ticket"], labelled["label"], strict=True)) == predicted
    assert len(set(predicted.values())) > 1 and labelled["probability"].between(0, 1).all()


EXPORT = 'id,sentence,label,input_label\n0071,"a line,\nof two",gold,\nNA,None,gold,x\n7,12345,,NA\n'


def check_export(labelled, classifier):
    """Every cell of the export is kept, and its own labels are not overwritten."""
    labelled = labelled.sort_values("id", ignore_index=True)
    given = pd.read_csv(io.StringIO(EXPORT), dtype=str, keep_default_na=False).sort_values("id", ignore_index=True)
    kept = labelled.drop(columns=["label", "probability"]).set_axis(given.columns, axis=1)
    pd.testing.assert_frame_equal(kept.astype(str), given, check_dtype=False)
    assert list(labelled["label"]) == list(classifier.predict(list(given["sentence"])))
    assert list(labelled.columns[2:4]) == ["input_label", "input_input_label"]


def test_an_export_through_the_pandas_udf(demo_classifier, tmp_path):
    demo_classifier.save(tmp_path / "saved")
    (tmp_path / "rows.csv").write_text(EXPORT)
    pandas_udf.main(*(str(tmp_path / name) for name in ("saved", "rows.csv", "labels.csv")))
    check_export(pd.read_csv(tmp_path / "labels.csv", dtype=str, keep_default_na=False), demo_classifier)


@pytest.mark.long
def test_ray(demo_classifier, predicted, tmp_path, monkeypatch):
    """One of two local workers dies in a batch."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from examples import ray_predict

    class Mortal(ray_predict.Worker):
        def __call__(self, table, death=tmp_path / "death"):
            if 53 in set(table["ticket"]) and not death.exists():
                death.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(table)

    monkeypatch.setenv("PYTHONPATH", str(processes.ROOT))  # For the workers.
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
    try:
        (tmp_path / "rows.csv").write_text(EXPORT)
        export = ray_predict.label(ray_predict.read_csv(str(tmp_path / "rows.csv")), demo_classifier)
        check_export(export.to_pandas(), demo_classifier)
        rows = ray.data.from_pandas(TABLE).repartition(5)
        labelled = ray_predict.label(rows, demo_classifier, Mortal, batch_size=19).to_pandas()
    finally:
        ray.shutdown()
    assert (tmp_path / "death").exists()
    assert dict(zip(labelled["ticket"], labelled["label"], strict=True)) == predicted
    assert len(labelled) == len(TABLE)


def test_support_tickets(tiny, tmp_path, capsys, monkeypatch):
    """The wrong labels are among those to look at, and the picture is drawn."""
    monkeypatch.setattr(kp, "demo_model", lambda name: tiny)
    suspicious = label_support_tickets.main("tiny", tmp_path / "tickets.png")
    assert len(suspicious) == label_support_tickets.SUSPICIOUS and suspicious["probability"].is_monotonic_increasing
    assert (tmp_path / "tickets.png").stat().st_size > 10_000
    assert "label " in capsys.readouterr().out


def test_one_table(tmp_path, capsys):
    values = {"models": "tiny", "tasks": "demo", "shots": "8", "seeds": "1,2"}
    chart = reproduce_a_table.main(**values, output=str(tmp_path))
    assert chart.stat().st_size > 5_000
    assert "kNN, L2 of hidden states" in capsys.readouterr().out


# Stands for srun, and for a host's shell behind gcloud: two processes, which JAX joins as tasks of Slurm.
SRUN = """#!/bin/bash
for process in 0 1; do SLURM_PROCID=$process "$@" & processes+=($!); done
for process in "${processes[@]}"; do wait "$process" || exit 1; done
"""
GCLOUD = """#!/bin/bash
for given in "$@"; do [[ $given == --command=* ]] && exec srun bash -c "${given#--command=}"; done
echo copied
"""
PYTHON = f"""#!/bin/bash
[[ $1 == experiments/check.py ]] && shift && set -- tests/parallel/check_together.py "$@"
exec {sys.executable} "$@"
"""


@pytest.mark.long
@pytest.mark.parametrize("script", ["gpu_hosts.sbatch", "tpu_slice.sh"])
def test_scripts_of_clusters(script, tmp_path):
    """Two processes on CPUs print the lines that the script's comments promise, but for numbers."""
    for name, program in {"srun": SRUN, "gcloud": GCLOUD, "python": PYTHON, "pip": "#!/bin/bash\n"}.items():
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    scheduler = {"JOB_ID": str(os.getpid()), "STEP_NODELIST": "localhost", "NTASKS": "2", "STEP_NUM_NODES": "2"}
    environment = {f"SLURM_{name}": value for name, value in scheduler.items()}
    environment |= {
        "SLURM_LOCALID": "0",
        "SLURM_CPUS_PER_TASK": "1",
        "MODEL": "tiny",
        "SHOTS": "3",
        "OUTPUT": str(tmp_path),
    }
    environment |= {"TPU": "mine", "ZONE": "here", "FOLDER": ".", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(processes.ROOT)}
    path = processes.ROOT / "examples" / script
    done = subprocess.run(
        ["bash", path], cwd=processes.ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    promised = re.findall("^#> (.*)$", path.read_text(), re.MULTILINE)
    assert promised
    for line in promised:
        words = (re.escape(word) for word in re.split(r"[\d.e-]+|\s+|labelled/", line) if word)
        assert re.search(".*".join(words), done.stdout), line
