"""Training, end to end: VISSL's own PIRL config and ours through VISSL's engine, in turn.

The same folder of images, network, batch and number of negatives; each run is the host's own
script in a process of its own, and the times are those of the host's own timers. The images are
listed again and again up to ``--rows``: a bank as small as a benchmark's folder would make our loss
a product with all of it.
"""

from __future__ import annotations

import itertools
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.benchmark.arguments import WARM_UP_STEPS
from pirl_plugin.benchmark.images import image_folder
from pirl_plugin.benchmark.peers import OUR_CONFIG
from pirl_plugin.benchmark.timing import MACHINES, device_of, ratio
from pirl_plugin.utils.console import VARIABLE
from pirl_plugin.utils.hydra_overrides import quoted
from pirl_plugin.utils.our_configs import VISSL_PIRL
from pirl_plugin.utils.subprocesses import stream

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_TIMER = re.compile(r"^\s*(\w+):\s+([\d.]+) ms\s+([\d.]+) ms$")
STEP = "train_step_total"
QUICK = "quick_jigsaw"
# Shares of a step -> the host's timers. What no timer covers is the hooks'.
_PARTS = {
    "input": ("read_sample",),
    "forward": ("forward",),
    "loss": ("loss_compute", "loss_all_reduce"),
    "backward": ("backward",),
    "update": ("optimizer_step",),
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns ``{"rows": [...]}``, one for each kind of run."""
    device_of(options)
    steps: dict[str, list[dict[str, float]]] = {"vissl": [], "ours": [], "ours, bfloat16": []}
    wanted = options.batch * (options.steps + WARM_UP_STEPS + 2)
    if options.rows < wanted:
        raise SystemExit(
            f"pirl_plugin: --rows {options.rows} is less than the {wanted} images of "
            f"{options.steps} + {WARM_UP_STEPS + 2} steps of {options.batch}: raise it, or lower "
            f"--batch"
        )
    with image_folder(options.data, wanted, options.rows) as folder:
        for turn in range(options.rounds):
            for kind, found in steps.items():
                title = f"{kind}, run {turn + 1} of {options.rounds}"
                found += measure_run(kind, folder, options, title)
    totals = {kind: [step[STEP] for step in found] for kind, found in steps.items()}
    rows = []
    for kind, found in steps.items():
        median = statistics.median(totals[kind])
        row = {
            "training": kind,
            "images_per_s": 1e3 * options.batch / median,
            "images_per_s_max": 1e3 * options.batch / min(totals[kind]),
            "speedup_over_vissl": ratio(totals["vissl"], totals[kind]),
        }
        for part, timers in {**_PARTS, "hooks": ()}.items():
            parts = [_share(step, timers) for step in found]
            row[f"{part}_share"] = statistics.median(parts)
        rows.append(row)
    print(tabulate(rows, "keys", ".3g"))
    return {"rows": rows, "options": {k: str(v) for k, v in vars(options).items()}}


def _share(step: dict[str, float], timers: Sequence[str]) -> float:
    """Share of a step's time that some timers took; without any, what none of them took."""
    covered = timers or [timer for part in _PARTS.values() for timer in part]
    share = sum(step.get(timer, 0.0) for timer in covered) / step[STEP]
    return share if timers else 1 - share


def measure_run(
    kind: str, folder: Path, options: argparse.Namespace, title: str
) -> list[dict[str, float]]:
    """Milliseconds of each timer in each counted step of one run.

    Args:
        kind: ``vissl``, or a name of our runs, which begins with ``QUICK`` for that config, and
            ends in ``bfloat16`` for autocast.
        folder: of the images.
        options: of ``benchmark train``.
        title: to print first.

    Raises:
        SystemExit: it ended early; quotes the end of its log.
    """
    print(title, flush=True)
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "pirl_plugin", "train"]
        command += [*_overrides(kind, folder, options), f"config.CHECKPOINT.DIR={quoted(out)}"]
        log = _first_reports(command, options.threads, options.steps + WARM_UP_STEPS + 1)
    return parse_timers(log, on_gpu=options.device == "cuda")[WARM_UP_STEPS:]


def _first_reports(command: list[str], threads: int, count: int) -> str:
    """The log of a run up to its report number ``count``, where it is stopped.

    Raises:
        SystemExit: it ended before; quotes the end of its log.
    """
    lines: list[str] = []

    def enough(line: str) -> bool:
        lines.append(line)
        return sum(text.strip().startswith("read_sample:") for text in lines) > count

    environment = {"OMP_NUM_THREADS": str(threads), VARIABLE: "log"}
    ended = stream(command, enough, environment=environment, own_session=True)
    if sum(text.strip().startswith("read_sample:") for text in lines) <= count:
        raise SystemExit(f"pirl_plugin: the run ended early: {''.join(ended.tail)}")
    return "".join(lines[:-1])  # the last is the first line of one report more


def parse_timers(log: str, on_gpu: bool = False) -> list[dict[str, float]]:
    """Milliseconds of each of the host's timers in each step, from a log with reports of all steps.

    The host reports, in the middle of a step, the means over all steps so far; a timer that has not
    stopped by then, such as the whole step's, is a step behind.
    """
    reports: list[dict[str, float]] = []
    for line in log.splitlines():
        found = _TIMER.match(line)
        if found is None:
            continue
        name, host, gpu = found[1], float(found[2]), float(found[3])
        if not reports or name in reports[-1]:
            reports.append({})
        reports[-1][name] = gpu if on_gpu and name != "read_sample" else host
    columns = {}
    for name in {name for report in reports for name in report}:
        means = [report[name] for report in reports if name in report]
        sums = [0.0, *(mean * count for count, mean in enumerate(means, 1))]
        columns[name] = [after - before for before, after in itertools.pairwise(sums)]
    steps = min((len(column) for column in columns.values()), default=0)
    return [{name: column[step] for name, column in columns.items()} for step in range(steps)]


def _overrides(kind: str, folder: Path, options: argparse.Namespace) -> list[str]:
    common = [
        f"+config/pirl/machines={MACHINES[options.device]}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(folder)}]",
        f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA={options.batch}",
        f"config.DATA.NUM_DATALOADER_WORKERS={options.workers}",
        "config.OPTIMIZER.num_epochs=1",
        "config.HOOKS.PERF_STATS.MONITOR_PERF_STATS=true",
        "config.HOOKS.PERF_STATS.PERF_STAT_FREQUENCY=1",
        "config.CHECKPOINT.CHECKPOINT_FREQUENCY=1000",
    ]
    if kind == "vissl":
        width = 512 if options.depth == 18 else 2048
        g = f'[["mlp",{{dims:[{width},128],use_bn:false,use_relu:false}}]'
        g += ',["siamese_concat_view",{num_towers:9}],["mlp",{dims:[1152,128]}]]'
        trunk = [f"config.MODEL.TRUNK.RESNETS.DEPTH={options.depth}"]
        if options.depth == 18:  # VISSL's own trunk begins at 50
            name = "config.MODEL.TRUNK.NAME=pirl_resnet"
            trunk = [name, "+config.MODEL.TRUNK.PIRL_RESNET.DEPTH=18"]
        return [
            f"config={VISSL_PIRL}",
            *common,
            *trunk,
            f'config.MODEL.HEAD.PARAMS=[{g},[["mlp",{{dims:[{width},128]}}]]]',
            "config.LOSS.nce_loss_with_memory.negative_sampling_params.num_negatives="
            f"{options.negatives}",
        ]
    if kind.startswith(QUICK):
        ours = [f"config=pretrain/pirl/{QUICK}", *common]
    else:
        ours = [OUR_CONFIG.format("jigsaw"), f"+config/pirl/models=resnet{options.depth}", *common]
        ours.append(f"config.LOSS.pirl_loss.num_negatives={options.negatives}")
    if kind.endswith("bfloat16"):
        ours.append("config.HOOKS.PIRL_INPUT.autocast=bfloat16")
    return ours
