"""The comparison's binaries as a user starts them: methods and options from the command line."""


def test_the_main_job_is_a_comparison_of_two_methods(start, tmp_path):
    """On the tiny model and the shipped task, few shots and one seed."""

    def run(*command: str) -> str:
        process = start(*command)
        out, error = process.communicate(timeout=900)
        assert process.returncode == 0, error
        return out

    few = ["--model=tiny", "--shots=3", "--demo_shots=1", "--seeds=7", f"--output={tmp_path}"]
    done = run("knn_prompting", *few, "--options.knn.k=1")
    assert "In-context learning" in done and "kNN Prompting" in done and "LM tokens" in done
    assert len(list(tmp_path.glob("*.json"))) == 2
    resumed = run("compare", *few, "--options.knn.k=1", "--methods=icl,knn", "--resume")
    assert resumed.splitlines()[3:6] == done.splitlines()[3:6]
    tables = run("report", f"--records={tmp_path}", "--format=markdown")
    assert "### 3 shots per class, 1 seed" in tables and "| kNN Prompting | " in tables
