"""The effect of λ, of the permutations or of the negatives (Sec. 4): runs, table, figure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.linear_run import linear_top1, svm_map
from pirl_plugin.experiments.quickstart_data import find_data
from pirl_plugin.experiments.sweep_launch import Here, Launcher, Slurm, make_all
from pirl_plugin.experiments.sweep_results import Result, markdown, write_results
from pirl_plugin.experiments.sweep_runs import Settings, chain, check_overrides
from pirl_plugin.experiments.sweep_values import SWEEPS, points
from pirl_plugin.utils.outputs import claim_folder, write_json

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def run_sweep(options: argparse.Namespace) -> None:
    """Make the runs that are left, then the table and the figure.

    Args:
        options: as of the command.

    Raises:
        SystemExit: data or overrides that cannot be used; or at the end, if runs failed.
    """
    data = find_data(options.data)
    if data.val is None:
        raise SystemExit(
            f"pirl_plugin: {options.data} cannot be evaluated on: expected train/CLASS/* and "
            f"val/CLASS/* with two classes or more, and found {data.num_classes} in {data.train}"
        )
    overrides = (tuple(options.overrides), tuple(options.linear))
    settings = Settings(
        options.name, options.scale, data, options.out, *overrides, voc07=options.voc07
    )
    try:
        check_overrides(settings)
        asked = points(options.name, options.values)
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    launcher = Slurm(options.slurm) if options.slurm else Here(_threads(options.scale))
    if options.dry_run:
        _print_commands(settings, asked, launcher)
        return
    about = {
        "scale": options.scale,
        "data": str(options.data),
        "pre-training": shlex.join(options.overrides),
        "linear": shlex.join(options.linear),
    }
    if options.voc07 is not None:
        about["VOC07"] = str(options.voc07)
    known = _claim(options.out, options.name, about, asked)
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


def _claim(
    out: Path, name: str, about: dict[str, str], asked: list[tuple[str, float]]
) -> list[tuple[str, float]]:
    """Make ``out`` the folder of this sweep; returns all models that it was ever asked for.

    Raises:
        SystemExit: the folder holds another sweep, whose runs would be taken for this one's.
    """
    now: dict[str, object] = {"sweep": name, **about}
    try:
        before = claim_folder(out, now, "sweep.json", "sweep")
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    order = list(SWEEPS[name].limits)
    models = {(method, value) for method, value in before.get("models", [])} | set(asked)
    known = sorted(models, key=lambda point: (order.index(point[0]), point[1]))
    write_json(out / "sweep.json", {**now, "models": known})
    return known


def _threads(scale: str) -> int:
    import torch

    # At the paper's scale a node has several processes, whose work is on GPUs.
    return torch.get_num_threads() if scale == "quick" else 1
