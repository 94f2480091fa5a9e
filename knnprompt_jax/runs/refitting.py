"""The command that fits a saved classifier again, with the options that its file knows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import characters, options, shipped
from knnprompt_jax.classifier.classifier_options import AUTO, AutoOptions
from knnprompt_jax.classifier.fitted import Content
from knnprompt_jax.settings import commands, shared
from knnprompt_jax.tasks import catalogue

TRAIN_FILE = "train.csv"  # The file of a classifier does not name its train file.


def command(content: Content, classifier: str, further: Sequence[str] = (), corrections: Sequence[str] = ()) -> str:
    """Return the command that fits a classifier to its train file again, quoted for the shell.

    Args:
        content: the classifier.
        classifier: its file.
        further: more train files.
        corrections: files of corrected labels.

    Returns:
        The command; "" if Python fitted the classifier, or to the rows of a published task, which have no file.
    """
    fit = content.options
    if not isinstance(fit, AutoOptions) or not content.file_options or content.task.name in catalogue.names():
        return ""
    values = {
        **_row_options(content),
        "model": None if content.model.name == shipped.DEFAULT else content.model.name,
        "dtype": content.model.dtype,
        "deterministic": content.model.deterministic,
        "classifier": classifier,
        "train_file": TRAIN_FILE,
        "corrections": tuple(corrections),
        "demo_shots": _demo_shots(fit.demo_shots),
        "experts": fit.experts,
        "encoder": fit.encoder,
        "seed": fit.random_state,
        "label_token": fit.label_token,
        "class_prior": _prior(fit.class_prior, content.labels_C),
        "datastore": fit.store_options.to_dict(),
        "overwrite": True,
    }
    defaults = {**shared.FileOptions().file_options(), **shared.MODEL_DEFAULTS}
    given = {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}
    flags = to_flags(options.from_config(commands.FitSettings, given))
    return " ".join(["knnprompt fit", *map(characters.shell_word, flags)])


def _row_options(content: Content) -> dict[str, Any]:
    """Return the options by which the rows of the classifier's file were read."""
    task = content.task
    if task.name != catalogue.OWN:
        return {**content.file_options, "task": f"{task.name}.yaml"}
    # A name with a comma cannot be given, so it was not.
    columns = () if any("," in field for field in task.fields) else task.fields
    return {**content.file_options, "text_columns": columns}


def _demo_shots(given: Any) -> tuple[int, ...] | None:
    """Return the option `--demo_shots` for that of a classifier."""
    if given == AUTO:
        return None
    numbers = given if isinstance(given, list | tuple) else (given,)
    return tuple(-1 if number is None else number for number in numbers)


def _prior(given: Any, labels_C: np.ndarray) -> str:
    """Return the option `--class_prior` for that of a classifier, read from its file."""
    if given is None or isinstance(given, str):
        return given or ""
    shares = given if isinstance(given, Mapping) else dict(zip(np.sort(labels_C).tolist(), given, strict=True))
    return ",".join(f"{label}={share}" for label, share in shares.items())


def to_flags(given: options.Options) -> list[str]:
    """Return the options that differ from their defaults as flags: `--name=value`, `--name` for True."""
    values = options.flattened(given.to_dict())
    flags = []
    for name, default, _ in options.declarations(type(given)):
        value = values[name]
        if value is True and not default:
            flags.append(f"--{name}")
        elif value != default:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            flags.append(f"--{name}={text}")
    return flags
