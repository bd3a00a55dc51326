"""Run VISSL's own, unmodified script as a user would, and read the output files."""

import importlib.util
import json
from pathlib import Path

import torch

from tests.helpers.programs import run_python

# Neither the clone nor a folder of modules, which `python -m` would find before VISSL's `configs`.
ELSEWHERE = Path(__file__).parents[1] / "helpers"


def host_script(name: str = "run_distributed_engines.py") -> Path:
    """Return ``tools/NAME`` beside the installed VISSL."""
    spec = importlib.util.find_spec("vissl")
    return Path(spec.origin).parents[1] / "tools" / name


def run(*overrides, command=None, check=True, environment=None, folder=ELSEWHERE):
    """Run a VISSL script, or ``python COMMAND …``, with overrides."""
    variables = {"PIRL_PLUGIN_CONSOLE": "log", **(environment or {})}
    command = command or [host_script()]
    return run_python(*command, *overrides, folder=folder, check=check, **variables)


def settings(data, out, epochs, processes=1, workers=0):
    """A tiny run: 20 48-px images, batches of 4, 8-px patches."""
    return [
        "config=pretrain/pirl/quick_jigsaw",
        f"config.DATA.TRAIN.DATA_PATHS=[{data / 'train'}]",
        f"config.CHECKPOINT.DIR={out}",
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.DISTRIBUTED.NUM_PROC_PER_NODE={processes}",
        f"config.DATA.NUM_DATALOADER_WORKERS={workers}",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        "config.DATA.TRAIN.TRANSFORMS="
        "[{name: PIRLJigsaw, image_size: 24, patches_crop_size: 30, patch_size: 8}]",
        "config.LOSS.pirl_loss.num_negatives=8",
        "config.CHECKPOINT.CHECKPOINT_FREQUENCY=1",
        "config.OPTIMIZER.param_schedulers.lr.start_value=0.01",
        "config.OPTIMIZER.param_schedulers.lr.end_value=0.01",
        "config.HOOKS.PIRL_INPUT.autocast=null",
        "config.LOG_FREQUENCY=5",
    ]


def losses(out):
    lines = (out / "stdout.json").read_text().splitlines()
    return {line["iter"]: line["loss"] for line in map(json.loads, lines)}


def state(out):
    file = torch.load(out / "checkpoint.torch", weights_only=True)
    return file["loss"], file["classy_state_dict"]["base_model"]["model"]["trunk"]
