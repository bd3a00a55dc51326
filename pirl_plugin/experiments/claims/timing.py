"""What an image costs each method: short runs in turn, so that all of them find the same machine.

Runs of days find faster and slower hours, and other machines. Their seconds say what they took; a
comparison at equal time needs the ratio of the methods' costs, which is measured side by side.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.clock import marked
from pirl_plugin.experiments.claims.methods import METHODS, pretraining
from pirl_plugin.experiments.claims.model import finish
from pirl_plugin.experiments.runs import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pirl_plugin.experiments.claims.claims_file import Cost, Setting
    from pirl_plugin.experiments.claims.workspace import Workspace

_STEPS = 312  # of a short run; a quarter of them is its start, and is not counted


def time_methods(
    methods: Sequence[str], workspace: Workspace, setting: Setting, rounds: int
) -> Cost:
    """Time each method once a round, on a machine that should do nothing else.

    Args:
        methods: those that train; ``random`` is left out.
        workspace: of the comparison.
        setting: the same, as ``claims.json`` has it.
        rounds: short runs of each.

    Raises:
        SystemExit: a run of the host failed, or was too short to be timed.
    """
    trained = [method for method in METHODS if method in methods and METHODS[method].config]
    found: dict[str, list[float]] = {method: [] for method in trained}
    for number in range(rounds):
        for method in trained:
            seconds = _seconds_per_image(method, workspace, number)
            found[method].append(round(1000 * seconds, 4))
            print(
                f"Round {number + 1} of {rounds}: {METHODS[method].label}: "
                f"{1000 * seconds:.2f} s for 1,000 images",
                flush=True,
            )
    return {
        "seconds_per_1000_images": {m: statistics.median(each) for m, each in found.items()},
        "rounds": found,
        "hardware": setting["hardware"],
        "precision": setting["precision"],
        "versions": setting["versions"],
        "measured": time.strftime("%Y-%m-%d"),
    }


def _seconds_per_image(method: str, workspace: Workspace, number: int) -> float:
    scale, num_train = workspace.scale, workspace.data.num_train
    epochs = max(1, round(_STEPS * scale.batch / num_train))
    per_epoch = math.ceil(num_train / scale.batch)  # the last batch of an epoch may be smaller
    every = max(1, epochs * per_epoch // 4)
    often = (f"config.CHECKPOINT.CHECKPOINT_ITER_FREQUENCY={every}",)
    folder = workspace.out / "timing" / f"{method}_{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    overrides = pretraining(method, scale, workspace.data, epochs, number, often)
    title = f"{METHODS[method].label}, timing {number + 1}"
    finish(Run(title, folder / "pretrain", overrides), workspace.threads, [])
    steps = marked(folder / "pretrain", per_epoch)
    shutil.rmtree(folder)
    if len(steps) < 2:
        raise SystemExit(
            f"pirl_plugin: {title}: expected checkpoints after {every} steps and at the end, and "
            f"saw {len(steps)}: the run is too short to be timed; give more images"
        )
    first, last = min(steps), max(steps)
    kind = "cpu" if scale.cpu_time and steps[last]["cpu"] else "wall"
    images = (last - first) * num_train / per_epoch
    return (steps[last][kind] - steps[first][kind]) / images
