"""Any set of methods on the same splits: one language-model pass a seed, a record a run and method."""

import collections
import dataclasses
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax import lm, parallel, progress
from knnprompt_jax.methods import method, registry, shared_pass
from knnprompt_jax.models import checkpoints, sharding
from knnprompt_jax.prompts import packing
from knnprompt_jax.runs import preparation, records
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import splits


@dataclasses.dataclass(frozen=True)
class ComparisonSettings(settings_lib.JobSettings):
    """The settings of any job, and the methods; see configs/compare.py for each option's meaning."""

    methods: str = registry.ALL
    options: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    resume: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.methods.split(",") if name.strip())


def run(settings: ComparisonSettings) -> list[records.Record]:
    """Runs every method for every seed; of several processes, the first writes each record as soon as it is there.

    With `resume`, what the output folder has a record of already, by the same settings and model, is not run again.

    Raises:
        UserError: on anything in the settings, the rows or the model that cannot work; nothing is written then.
    """
    started = time.monotonic()
    parallel.start(
        settings.distributed_auto,
        settings.distributed_address,
        settings.distributed_num_processes,
        settings.distributed_process_id,
    )
    mesh = parallel.make_mesh(settings.mesh_data, settings.mesh_model)
    material = preparation.gather(settings)
    sharding.check(material.model_config, mesh)
    plans = [_plan(settings, material, split, settings.names) for split in material.splits]
    _warn(plans[0], material.model_config.num_positions)
    drafts = list(_drafts(settings, material, plans))
    done = _finished(settings, drafts) if settings.resume else {}
    if missing := [draft for draft in drafts if draft.name not in done]:
        if done:
            plans = [
                _plan(settings, material, split, names)
                for split in material.splits
                if (names := [draft.method for draft in missing if draft.seed == split.seed])
            ]
        prepared_at = time.monotonic()
        model = lm.LanguageModel.from_pretrained(
            str(material.folder), settings.dtype, step_tokens=settings.batch or None, mesh=mesh
        )
        seconds = {"prepare": prepared_at - started, "load": time.monotonic() - prepared_at}
        for draft, outcome in zip(missing, _outcomes(model, plans), strict=True):
            record = dataclasses.replace(draft, **outcome | {"seconds": _rounded(seconds | outcome["seconds"])})
            done[record.name] = record
            if parallel.is_main():
                records.write(pathlib.Path(settings.output), record)
    parallel.wait_for_all("records")
    return [done[draft.name] for draft in drafts]


def _plan(
    settings: ComparisonSettings, material: preparation.Material, split: splits.FewShotSplit, names: Sequence[str]
) -> shared_pass.Plan:
    problem = method.Problem(
        task=material.task,
        split=split,
        evaluation=material.evaluation,
        tokenize=material.tokenize,
        label_token=settings.label_token,
        truncation=settings.truncation,
        logit_cap=material.model_config.logit_cap,
    )
    return shared_pass.plan(problem, names, material.model_config.num_positions, settings.options)


def _warn(plan: shared_pass.Plan, context: int) -> None:
    preparation.warn(plan.problem.split, plan.prompts, context)
    names_by_reason = collections.defaultdict(list)
    for name, reason in plan.left_out.items():
        names_by_reason[reason].append(name)
    for reason, names in names_by_reason.items():
        logging.warning("left out: %s: %s", ", ".join(names), reason)


def _drafts(
    settings: ComparisonSettings, material: preparation.Material, plans: Sequence[shared_pass.Plan]
) -> Iterator[records.Record]:
    """The records of all runs and methods, without what comes out of them."""
    fingerprint = checkpoints.fingerprint(material.folder, material.model_config)
    for plan in plans:
        split = plan.problem.split
        for name, options in plan.options.items():
            # Which seeds and methods ran beside this one is no part of what it did.
            own = {"seeds": (split.seed,), "methods": name, "options": {name: dict(options)}, "resume": False}
            yield records.Record(
                task=material.task.name,
                model=material.model,
                method=name,
                seed=split.seed,
                shots=split.shots,
                demo_shots=split.demo_shots,
                accuracy=float("nan"),
                predicted=(),
                true=tuple(example.label for example in material.evaluation),
                settings=dataclasses.asdict(settings) | own,
                fingerprint=fingerprint,
                class_counts={label: counts._asdict() for label, counts in split.class_counts.items()},
                prompts=plan.prompts.num_prompts,
                truncated_prompts=plan.prompts.num_truncated,
                dropped_demonstrations=plan.prompts.dropped_demonstrations,
            )


def _finished(settings: ComparisonSettings, drafts: Sequence[records.Record]) -> dict[str, records.Record]:
    """The records of the output folder that stand for drafts and are of the same rows."""
    folder = pathlib.Path(settings.output)
    found = {draft.name: records.read(folder / draft.name) for draft in drafts if (folder / draft.name).exists()}
    return {
        draft.name: found[draft.name]
        for draft in drafts
        if draft.name in found and found[draft.name].true == draft.true
    }


def _outcomes(model: lm.LanguageModel, plans: Sequence[shared_pass.Plan]) -> Iterator[dict[str, Any]]:
    """What comes out of each method of each plan, as fields of its record."""
    groups = (group for plan in plans for group in plan.prompts.groups)
    shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    for plan in plans:
        before, problem = model.statistics.seconds, plan.problem
        with progress.bar(plan.prompts.num_prompts, f"seed {problem.split.seed}, shared pass") as report:
            context = shared_pass.read(model, plan, lambda group: shapes[bool(len(group.prefix_P))], report)
        seconds = model.statistics.seconds - before
        true_Q = context.classes(problem.evaluation)
        for result in shared_pass.classify(context, plan):
            yield {
                "accuracy": float(np.mean(result.classes_Q == true_Q)),
                "predicted": tuple(problem.task.labels[index] for index in result.classes_Q),
                "seconds": {"language_model": seconds, "method": result.seconds},
                "anchors_per_second": round(plan.prompts.num_prompts / max(1e-9, seconds), 2),
                "lm_tokens": result.lm_tokens,
                "note": result.note,
                "candidates": result.candidates,
            }


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {stage: round(value, 3) for stage, value in seconds.items()}
