"""What a run was made with: recipe, precision, threads, versions and hardware."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pirl_plugin.experiments.claims.methods import METHODS, pretraining
from pirl_plugin.experiments.claims.plan import job_of
from pirl_plugin.experiments.data import quick_linear
from pirl_plugin.utils.processes import processor_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pirl_plugin.experiments.claims.claims_file import ClaimRow, MadeWith
    from pirl_plugin.experiments.claims.plan import Job
    from pirl_plugin.experiments.claims.workspace import Workspace

_PACKAGES = ("pirl-plugin", "vissl", "torch", "torchvision", "numpy", "numba")
_OF_A_RUN = ("python", "pirl-plugin", "vissl", "torch")
_AUTOCAST = "config.HOOKS.PIRL_INPUT.autocast"
# Keys that say where, on what and from which seed a run is made, or what is logged.
_NO_RECIPE = (
    "config.DATA.TRAIN.DATA_PATHS",
    "config.DATA.TEST.DATA_PATHS",
    "config.MODEL.WEIGHTS_INIT.PARAMS_FILE",
    "config.SEED_VALUE",
    "config.LOSS.pirl_loss.bank.seed",
    "+config/pirl/machines",
    "config.CHECKPOINT.",
    "config.LOG_FREQUENCY",
    _AUTOCAST,
)
# Keys that a later version added, at the value that every run had before.
_AS_BEFORE = {"config.LOSS.pirl_loss.bank.init": "random"}


def made_with(job: Job, workspace: Workspace) -> MadeWith:
    """What a job is made with here."""
    found = versions()
    return {
        "precision": _precision(job, workspace),
        "threads": workspace.threads,
        "versions": {name: found[name] for name in _OF_A_RUN if name in found},
        "hardware": hardware(workspace.threads, on_gpu=not workspace.scale.cpu_time),
        "recipe": recipe(job, workspace),
    }


def recipe(job: Job, workspace: Workspace) -> str:
    """A digest of the settings of a job's runs, without paths, seeds, devices and precision."""
    size, data = workspace.scale, workspace.data
    linear = [*quick_linear(data, Path()), f"+config/pirl/linear={size.model}", *size.linear]
    settings = [
        f"trunk={sorted(size.trunk.items())}",
        *_settings(linear),
        *_settings(_overrides(job, workspace)),
    ]
    return hashlib.sha256("\n".join(settings).encode()).hexdigest()[:12]


def _settings(overrides: Sequence[str]) -> list[str]:
    """``KEY=VALUE`` of what a run learns from and how: its config's files', then its overrides'."""
    files = tuple(word for word in overrides if word.startswith(("config=", "+config/")))
    found = dict(_of_files(tuple(word for word in files if not word.startswith(_NO_RECIPE))))
    for word in overrides:
        key, _, value = word.lstrip("+").partition("=")
        if word not in files and not key.startswith(_NO_RECIPE):
            found = {k: v for k, v in found.items() if not k.startswith(f"{key}.")}
            found[key] = value
    return [
        f"{key}={value}" for key, value in sorted(found.items()) if _AS_BEFORE.get(key) != value
    ]


@functools.lru_cache
def _of_files(words: tuple[str, ...]) -> dict[str, str]:
    """Key → value of the sections that a recipe is made of, as the files have them."""
    from omegaconf import OmegaConf
    from vissl.utils.hydra_config import compose_hydra_configuration

    if not words:
        return {}
    config = compose_hydra_configuration(list(words)).config
    found: dict[str, str] = {}
    for section in ("LOSS", "MODEL", "OPTIMIZER", "DATA.TRAIN", "DATA.TEST"):
        selected = OmegaConf.to_container(OmegaConf.select(config, section))
        found |= _flat(f"config.{section}", selected)
    return {key: value for key, value in found.items() if not key.startswith(_NO_RECIPE)}


def _flat(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {key: str(value)}
    return {k: v for name, below in value.items() for k, v in _flat(f"{key}.{name}", below).items()}


def _overrides(job: Job, workspace: Workspace) -> tuple[str, ...]:
    """Of the pre-training."""
    if METHODS[job.method].config is None:
        return ()
    return pretraining(
        job.method, workspace.scale, workspace.data, job.epochs, job.seed, job.overrides
    )


def refuse_other_recipes(
    rows: Iterable[ClaimRow], workspace: Workspace, files: Iterable[Path]
) -> None:
    """Refuse rows that would be made in another way now; those that do not say how are taken.

    Args:
        rows: finished runs.
        workspace: of what they are compared with.
        files: where they are from, for the message.

    Raises:
        SystemExit: there are such rows.
    """
    other = [
        job_of(row).title
        for row in rows
        if "made_with" in row and row["made_with"]["recipe"] != recipe(job_of(row), workspace)
    ]
    if other:
        raise SystemExit(
            f"pirl_plugin: {' and '.join(map(str, files))}: expected runs with the recipes of this "
            f"version, and another made these: {'; '.join(other)}; remove their rows from the "
            f"file, make them again with --again METHOD, or take another --out"
        )


def describe_other_precision(rows: Iterable[ClaimRow], workspace: Workspace) -> str | None:
    """A sentence on finished runs in another precision than such runs would have here."""
    made = {
        (row["made_with"]["precision"], here)
        for row in rows
        if "precision" in row.get("made_with", {})
        and row["made_with"]["precision"] != (here := _precision(job_of(row), workspace))
    }
    if not made:
        return None
    there, here = min(made)
    return (
        f"pirl_plugin: finished runs are in {there}, and such runs are in {here} on this machine: "
        f"accuracies may differ by it; make all of a method's on one kind with --again METHOD"
    )


def _precision(job: Job, workspace: Workspace) -> str:
    casts = dict(word.split("=", 1) for word in _overrides(job, workspace) if "=" in word)
    return precision(casts.get(_AUTOCAST, "null"))


def precision(autocast: str) -> str:
    """What networks are trained in, for people.

    Args:
        autocast: value of ``HOOKS.PIRL_INPUT.autocast``.
    """
    return "float32" if autocast == "null" else f"{autocast} (autocast)"


def hardware(threads: int, on_gpu: bool) -> str:
    """Processor or GPU, and the threads of a run."""
    if on_gpu and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores"
    return f"{processor_name()}, {os.cpu_count()} cores, {threads} thread(s) a run"


def versions() -> dict[str, str]:
    """Package → its version, and Python's."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
