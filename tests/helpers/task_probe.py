"""Run VISSL with a hook that compares its task with ``Task`` and prints differences as JSON.

This is a script, so it runs with any VISSL on PYTHONPATH.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from pirl_plugin.vissl.import_hook import finder

finder.install()

from classy_vision.hooks import ClassyHook  # noqa: E402
from vissl.hooks import default_hook_generator  # noqa: E402
from vissl.utils.distributed_launcher import launch_distributed  # noqa: E402
from vissl.utils.hydra_config import (  # noqa: E402
    compose_hydra_configuration,
    convert_to_attrdict,
)

from pirl_plugin.vissl.task import Task  # noqa: E402
from tests.helpers.tasks import ATTRIBUTES, METHODS  # noqa: E402

KINDS = {
    **{kind.__name__: kind for kind in (bool, int, float, str, list, dict)},
    "torch.device": torch.device,
    "nn.Module": torch.nn.Module,
    "None": type(None),
}
differences: dict[str, str] = {}


def compare(task: Any) -> None:
    """Add attributes that the task lacks, or has with another plain type."""
    for name in sorted(ATTRIBUTES):
        if not hasattr(task, name):
            differences[name] = "missing"
    for name, annotation in Task.__annotations__.items():
        parts = [part.strip().partition("[")[0] for part in annotation.split("|")]
        expected = tuple(KINDS[part] for part in parts if part in KINDS)
        value = getattr(task, name, None)
        if len(expected) == len(parts) and not isinstance(value, expected):
            differences[name] = f"{type(value).__name__}, expected {annotation}"
    for name in METHODS - {"loss", "model", "where"}:
        if not callable(getattr(task, name, None)):
            differences[name] = "expected a method"


class Probe(ClassyHook):
    """Compare after a step, when the task is complete, and at the end of the run."""

    on_start = on_phase_start = on_forward = on_loss_and_meter = on_backward = ClassyHook._noop
    on_update = on_phase_end = ClassyHook._noop

    def on_step(self, task: Any) -> None:
        compare(task)

    def on_end(self, task: Any) -> None:
        compare(task)


def hooks(config: Any) -> list[Any]:
    return [*default_hook_generator(config), Probe()]


if __name__ == "__main__":
    arguments, config = convert_to_attrdict(compose_hydra_configuration(sys.argv[1:]))
    launch_distributed(config, arguments.node_id, "train", hooks)
    print(json.dumps(differences))
