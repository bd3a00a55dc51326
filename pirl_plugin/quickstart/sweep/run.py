"""The effect of λ, of the permutations or of the negatives (Sec. 4): runs, table, figure."""

from __future__ import annotations

import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.linear_run import linear_top1, svm_map
from pirl_plugin.evaluation.tables.paper_settings.free import FREE
from pirl_plugin.quickstart.data import find_labelled_data
from pirl_plugin.quickstart.launchers import Here, Launcher, Slurm, make_all
from pirl_plugin.quickstart.sweep.models import (
    Settings,
    chain,
    check_overrides,
    check_runs,
    key_of,
)
from pirl_plugin.quickstart.sweep.results import Result, markdown, write_results
from pirl_plugin.quickstart.sweep.values import SWEEPS, points
from pirl_plugin.utils.outputs import check_claim, read_claim, write_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_EVALUATIONS = {"linear": "linear", "VOC07": "voc07"}  # what its settings are called → its folders
_RESOURCES = [k for k, why in FREE.items() if why in ("machine", "workers", "log")]


def run_sweep(options: argparse.Namespace) -> None:
    """Make the runs that are left, then the table and the figure.

    Args:
        options: as of the command.

    Raises:
        SystemExit: data or overrides that cannot be used; or at the end, if runs failed.
    """
    data = find_labelled_data(options.data)
    overrides = (tuple(options.overrides), tuple(options.linear))
    settings = Settings(
        options.name, options.scale, data, options.out, *overrides, voc07=options.voc07
    )
    try:
        check_overrides(settings)
        asked = points(options.name, options.values)
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    check_runs(settings, asked)
    launcher = Slurm(options.slurm) if options.slurm else Here(_threads(options.scale))
    if options.dry_run:
        _print_commands(settings, asked, launcher)
        return
    about = {
        "scale": options.scale,
        "data": str(options.data),
        "pre-training": _with_effect(options.overrides),
        "linear": _with_effect(options.linear),
    }
    if options.voc07 is not None:
        about["VOC07"] = str(options.voc07)
    known = _claim(settings, launcher, about, asked)
    chains = {f"{m} {v}": chain(settings, m, v) for m, v in asked}

    def collect() -> list[Result]:
        results = [_result(settings, method, value) for method, value in known]
        write_results(options.out, options.name, results, about)
        return results

    failures = make_all(chains, launcher, collect)
    print(f"\n{markdown(options.name, collect(), about)}", flush=True)
    print(f"In {options.out}: results.md, results.json, figure.png, figure.svg", flush=True)
    if failures:
        firsts = [text.splitlines()[0].removeprefix("pirl_plugin: ") for text in failures.values()]
        raise SystemExit(
            f"pirl_plugin: {len(failures)} of {len(chains)} models failed; the same command starts "
            f"them again:\n  " + "\n  ".join(first.rstrip(":") for first in firsts)
        )


def _result(settings: Settings, method: str, value: float) -> Result:
    _, linear, *svm = chain(settings, method, value)
    return Result(
        method,
        value,
        linear_top1(linear.folder) if linear.finished() else {},
        svm_map(svm[0].folder) if svm and svm[0].finished() else {},
    )


def _print_commands(settings: Settings, asked: list[tuple[str, float]], launcher: Launcher) -> None:
    runs = [run for point in asked for run in chain(settings, *point)]
    for run in runs:
        if run.finished():
            print(f"# finished: {run.title}")
        elif launcher.under_way(run):
            print(f"# under way: {run.title}")
        else:
            print(shlex.join(launcher.command(run)))


def _with_effect(overrides: list[str]) -> str:
    """The overrides that results depend on, as words of a shell: not memory, workers or the log."""
    keys = [key_of(override).removeprefix("config.") for override in overrides]
    kept = zip(overrides, keys, strict=True)
    return shlex.join(o for o, key in kept if not any(fnmatchcase(key, p) for p in _RESOURCES))


def _claim(
    settings: Settings, launcher: Launcher, about: dict[str, str], asked: list[tuple[str, float]]
) -> list[tuple[str, float]]:
    """Make the folder that of this sweep; returns all models that it was ever asked for.

    Raises:
        SystemExit: the folder holds another sweep, whose runs would be taken for this one's; or
            evaluations that began with other settings.
    """
    out, name = settings.out, settings.name
    file = out / "sweep.json"
    before = read_claim(file) if file.is_file() else {}
    for key in {"pre-training", "linear"} & set(before):  # where earlier versions kept all
        before[key] = _with_effect(shlex.split(before[key]))
    now = {"sweep": name, **about}
    pretraining = {key: value for key, value in now.items() if key not in _EVALUATIONS}
    order = list(SWEEPS[name].limits)
    models = {(method, value) for method, value in before.get("models", [])} | set(asked)
    try:
        if file.is_file():
            check_claim(out, before, pretraining, "sweep")
        known = sorted(models, key=lambda point: (order.index(point[0]), point[1]))
        _check_evaluations(settings, launcher, before, about, known)
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    write_json(file, {**before, **now, "models": known})
    return known


def _check_evaluations(
    settings: Settings,
    launcher: Launcher,
    before: Mapping[str, str],
    about: Mapping[str, str],
    known: list[tuple[str, float]],
) -> None:
    """Refuse settings of an evaluation that are not those of one which has begun.

    Raises:
        ValueError: names both, and the run.
    """
    evaluations = [run for point in known for run in chain(settings, *point)[1:]]
    for key, folder in _EVALUATIONS.items():
        if key not in about or before.get(key, about[key]) == about[key]:
            continue
        for run in evaluations:
            if run.folder.name == folder and (launcher.under_way(run) or run.begun()):
                raise ValueError(
                    f"{run.folder} was made with {key} {before[key] or 'none'} (now "
                    f"{about[key] or 'none'}): expected the same; give that, or remove "
                    f"{settings.out}/*/{folder} to evaluate all models again"
                )


def _threads(scale: str) -> int:
    import torch

    # At the paper's scale a node has several processes, whose work is on GPUs.
    return torch.get_num_threads() if scale == "quick" else 1
