"""The table that a comparison prints, from records made by hand."""

from knnprompt_jax.runs import overview, records


def record(
    method: str, seed: int, accuracy: float, task: str = "mr", shots: int = 7, **fields: object
) -> records.Record:
    return records.Record(
        key="",
        file_name=f"{task}-{method}-{seed}",
        task=task,
        model="gpt2",
        method=method,
        seed=seed,
        shots=shots,
        demo_shots=2,
        accuracy=accuracy,
        predicted=("0", "1", "1", "1"),
        true=("0", "1", "1", "0") if task == "mr" else ("0", "1", "1", "1"),
        settings={"seeds": [seed]},
        prompts=30,
        truncated_prompts=3,
        seconds={"language_model": 2.0 * seed, "method": 0.5 * seed},
        lm_tokens=1000 * seed,
        **fields,
    )


def cells(line: str) -> list[str]:
    return [cell for cell in line.replace("|", "  ").split("  ") if cell.strip()]


def rows(text: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in cells(line)] for line in text.splitlines() if line.strip()]
    return {line[0]: line[1:] for line in lines}


def test_of_a_comparison():
    chosen = {"note": "best of 2, CHOSEN", "candidates": (0.75, 0.25)}
    text = overview.describe_comparison(
        [
            *(record("icl", seed, 0.25) for seed in (1, 2)),
            record("noisy_channel", 1, 0.75, **chosen),
            record("noisy_channel", 2, 0.75, **chosen | {"note": "another", "candidates": (0.75, 0.5)}),
        ]
    )
    assert "4 test rows, 2 seeds; 50.0 %" in text and "7 shots per class: 2 demonstrations" in text
    got = rows(text)
    assert got["In-context learning"] == ["25.0 ± 0.0", "0.75", "1,500"]
    assert got["Noisy channel"] == ["75.0 ± 0.0", "0.75", "1,500"]
    assert got["· mean of its 2"] == ["56.2 ± 8.8"] and got["· worst of its 2"] == ["37.5 ± 17.7"]
    assert "Noisy channel, seed 1: best of 2, CHOSEN." in text and "another" not in text
    assert "Shared pass: 3.0 s per seed" in text
    assert "6 of 60 prompts truncated (10.0 %): In-context learning, Noisy channel." in text
