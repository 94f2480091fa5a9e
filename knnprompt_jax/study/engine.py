"""The engine: runs in, records out. Groups of runs share their prompts, and every job that runs methods uses it."""

import collections
import dataclasses
import functools
import itertools
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax.common import files, parallel
from knnprompt_jax.common import options as options_lib
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.inference import lm, states
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.report import records
from knnprompt_jax.study import job_inputs
from knnprompt_jax.tasks.task import Example

BeforeWriting = Callable[[records.Record, method_lib.Inputs], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodRun(records.Run):
    """A method with its options on a problem, with a language model.

    Attributes:
        method: the method that runs. It may differ from the requested `name`: a grid runs in-context learning for a
            method without anchors.
        note: a remark for the record.
    """

    method: method_lib.Method
    model: lm.LanguageModel
    options: options_lib.Options
    store_options: StoreOptions
    note: str = ""

    @functools.cached_property
    def identity(self) -> Mapping[str, Any]:
        """Everything that can change the outcome, as JSON values: rows, task, model, method and options, by content.

        Batch, packing and, in float32, devices may change the last digits of a state and are not part of it.
        """
        method_model = self.method.model_name(self.options)
        return {
            **super().identity,
            "label_token": self.problem.label_token,
            "model": self.model.fingerprint,
            "context": self.model.context,
            "dtype": self.model.dtype,
            "deterministic": self.model.deterministic,
            # Other dtypes depend on the platform: CPUs compute in float32.
            **({"platform": parallel.platform()} if self.model.dtype != "float32" else {}),
            **({"model_shards": self.model.mesh.shape[parallel.MODEL]} if self.model.deterministic else {}),
            # The base method; a preset shows in `options`.
            "runs": self.method.base + self.method.code_suffix,
            "options": self.options.to_dict(),
            "model_of_method": lm.find_fingerprint(method_model, self.model.needs_weights) if method_model else "",
            "datastore": self.store_options.to_dict(),
        }


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs with the same task, model and demonstrations. One pass of the model reads each of their prompts once."""

    runs: tuple[MethodRun, ...]

    @property
    def model(self) -> lm.LanguageModel:
        return self.runs[0].model

    @property
    def task(self) -> str:
        return self.runs[0].problem.task.name

    @property
    def demonstrations(self) -> Sequence[Example]:
        return self.runs[0].problem.split.demonstrations

    @property
    def title(self) -> str:
        """The model, the task, the seeds and the number of demonstrations, for the progress bar."""
        seeds = ",".join(map(str, sorted({run.problem.split.seed for run in self.runs})))
        return f"{self.model.short_name} {self.task} seed {seeds}, {len(self.demonstrations)} demonstrations in all"

    @functools.cached_property
    def examples(self) -> dict[str, Example]:
        """The examples of all shared prompts, anchors included, by their text; one for each distinct text."""
        # Runs share problem objects, so compare by identity.
        sets = {(id(run.problem), needed): (run.problem, needed) for run in self.runs for needed in run.method.needs}
        examples: dict[str, Example] = {}
        for problem, prompt_set in sets.values():
            examples |= {problem.task.render(example): example for example in prompt_set.examples_of(problem)}
        return examples

    @functools.cached_property
    def _index_of(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.examples)}

    def build_prompts(self) -> layout.Prompts:
        """Tokenize the shared prompts, in the order of `examples`; raise UserError as `layout.build_prompts`."""
        problem = self.runs[0].problem
        return problem.build_prompts(self.demonstrations, list(self.examples.values()), self.model.context)

    def indices(self, run: MethodRun, prompt_set: method_lib.PromptSet) -> np.ndarray:
        """Return the indices of a run's prompts among the shared prompts."""
        texts = map(run.problem.task.render, prompt_set.examples_of(run.problem))
        return np.array([self._index_of[text] for text in texts], int)


def group_runs(runs: Iterable[MethodRun]) -> list[RunGroup]:
    """Group the runs of one task and model by their demonstrations, groups with fewer demonstrations first."""
    members_by_rows = collections.defaultdict(list)
    for run in runs:
        key = tuple(example.row for example in run.problem.split.demonstrations)
        members_by_rows[key].append(run)
    groups = [RunGroup(tuple(members)) for members in members_by_rows.values()]
    return sorted(groups, key=lambda group: len(group.demonstrations))


def run_groups(
    groups: Sequence[RunGroup], folder: pathlib.Path, cache_gb: float, before_writing: BeforeWriting | None = None
) -> Iterator[records.Record]:
    """Run groups in their order and yield each record as soon as it is written to the folder.

    The records of an experiment are in a subfolder of its name. The first prompts are built before weights load.

    Args:
        groups: those of one model follow one another; its weights are freed after the last.
        folder: the folder of the records.
        cache_gb: GiB of the cache of states on disk.
        before_writing: called in every process with each record and the inputs of its method, before the record is
            written.

    Raises:
        UserError: prompts that cannot be built, a model that cannot be loaded, or a folder that cannot be written.
    """
    parallel.call_in_main(lambda: files.check_writable(folder, folder=True))
    cache = states.open_disk_cache(cache_gb)
    number_of = {id(group): number for number, group in enumerate(groups, 1)}
    for _, model_groups in itertools.groupby(groups, lambda group: group.model):
        # Groups of a task with equally many demonstrations share their pack shapes.
        for _, same_shape in itertools.groupby(model_groups, lambda group: (group.task, len(group.demonstrations))):
            members = list(same_shape)
            titles = [f"{number_of[id(group)]}/{len(groups)} {group.title}" for group in members]
            # Only the first group's, because other seeds have the same warnings.
            warnings = dict.fromkeys(text for run in members[0].runs for text in run.problem.split.warnings)
            job_inputs.log_warnings(warnings)
            prompts = [group.build_prompts() for group in members]
            results = states.read_sets(members[0].model, prompts, cache, titles)
            for group, group_prompts, result in zip(members, prompts, results, strict=True):
                yield from _write_records(group, group_prompts, result, cache, folder, before_writing)
            if oversized := max(group_prompts.num_oversized for group_prompts in prompts):
                without = f"the context of {members[0].model.context} tokens even without demonstrations"
                logging.warning("%d texts exceed %s; their first tokens were cut off", oversized, without)
        members[0].model.free()
    parallel.wait_for_all("records")


def _write_records(
    group: RunGroup,
    prompts: layout.Prompts,
    result: states.PassResult,
    cache: states.Cache | None,
    folder: pathlib.Path,
    before_writing: BeforeWriting | None,
) -> Iterator[records.Record]:
    """Run the methods of a group, and yield each record after it is written. Equal runs have one prediction."""
    predictions: dict[str, tuple[method_lib.Prediction, float]] = {}
    for run in group.runs:
        indices = {prompt_set: group.indices(run, prompt_set) for prompt_set in run.method.needs}
        needed_states = {prompt_set: result.states.take_replicated(rows) for prompt_set, rows in indices.items()}
        inputs = method_lib.Inputs(run.problem, run.model, needed_states, run.store_options, cache)
        if run.key not in predictions:
            started = time.monotonic()
            prediction = run.method.predict(inputs, run.options)
            predictions[run.key] = prediction, time.monotonic() - started
        own_prompts = np.unique(np.concatenate([np.zeros(0, int), *indices.values()]))
        prediction, seconds = predictions[run.key]
        record = records.Record.of(
            run,
            tuple(run.problem.task.labels[index] for index in np.asarray(prediction.classes_Q)),
            prompts=len(own_prompts) + prediction.prompts,
            truncated_prompts=int(np.isin(prompts.truncated_index, own_prompts).sum()) + prediction.truncated,
            seconds={"language_model": round(result.seconds, 3), "method": round(seconds, 3)},
            prompts_per_second=round(result.num_read / max(1e-9, result.seconds), 2),
            lm_tokens=_num_tokens(prompts, own_prompts) + prediction.tokens,
            note="; ".join(filter(None, (run.note, prediction.note))),
            candidates=prediction.candidates,
        )
        if before_writing:
            before_writing(record, inputs)
        parallel.call_in_main(functools.partial(records.write, folder / record.experiment, record))
        yield record


def _num_tokens(prompts: layout.Prompts, indices: np.ndarray) -> int:
    """Count the tokens of the prompts with these indices; the prefix of a `PromptGroup` counts once."""
    parts = [(part, np.flatnonzero(np.isin(part.number_N, indices))) for part in prompts.groups]
    return sum(part.take(members).num_tokens for part, members in parts if members.size)
