"""No key of a config is one that nothing reads, and a key in the wrong place does not pass."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.configs import compose

# What the quick configs take the place of: the trunk, and a learning rate that follows the batch.
SUPERSEDED = [
    "MODEL.TRUNK.RESNETS.DEPTH",
    "MODEL.TRUNK.RESNETS.WIDTH_MULTIPLIER",
    "OPTIMIZER.param_schedulers.lr.auto_lr_scaling.base_lr_batch_size",
    "OPTIMIZER.param_schedulers.lr.auto_lr_scaling.base_value",
]
COMPLETE = [
    "pretrain/pirl/jigsaw_8node",
    "pretrain/pirl/rotation_8node",
    "pretrain/pirl/rotation_jigsaw_8node",
    "pretrain/pirl/npid_8node",
    "pretrain/pirl/npidpp_8node",
    "pretrain/pirl/jigsaw_baseline_8node",
    "pretrain/pirl/rotation_baseline_8node",
]
OVERLAYS = [
    "models=resnet50_mlp", "transforms=gaussian_blur", "bank=sharded", "datasets=folder",
]  # fmt: skip
PLANTED = """\
# @package _global_
defaults:
  - /config/pretrain/pirl/npid_8node
  - _self_
config:
  HOOKS:
    PIRL_INPTU: {autocast: bfloat16}
  DATA:
    TRAIN:
      BATCH_SIZE: 4
  MODEL:
    HEAD:
      PARAMS: [["mlp", {"dims": [2048, 512, 128]}, "use_relu": True]]
  OPTIMIZER:
    param_schedulers:
      lr:
        strat_value: 0.3
"""


def unread(configs, data, folder):
    """What ``unread_keys.py`` finds in a run of one step of each config, on a CPU.

    ``configs`` are names, or names and an overlay: ``"pretrain/pirl/npid_8node models=resnet18"``.
    """
    runs = {}
    for i, config in enumerate(configs):
        overlays = [f"+config/pirl/{overlay}" for overlay in config.split()[1:]]
        runs[config] = [
            "+config/pirl/machines=cpu",
            *overlays,
            f"config.DATA.TRAIN.DATA_PATHS=[{data / 'val'}]",
            "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
            "config.DATA.TRAIN.DATA_LIMIT=4",
            "config.OPTIMIZER.num_epochs=1",
            f"config.CHECKPOINT.DIR={folder / str(i)}",
        ]
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "helpers" / "unread_keys.py"),
        json.dumps(runs),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_unread_keys__are_found_where_they_are_planted(image_folder, tmp_path):
    """One is VISSL's ``use_relu``, outside the options of the head that it was meant for."""
    file = tmp_path / "configs" / "config" / "planted" / "misplaced.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(PLANTED)
    assert unread(["planted/misplaced"], image_folder, tmp_path)["planted/misplaced"] == [
        "DATA.TRAIN.BATCH_SIZE",
        "HOOKS.PIRL_INPTU.autocast",
        "MODEL.HEAD.PARAMS.0.2.use_relu",
        "OPTIMIZER.param_schedulers.lr.strat_value",
    ]


@pytest.mark.slow
def test_configs__have_no_key_that_nothing_reads(image_folder, tmp_path):
    overlaid = [f"pretrain/pirl/rotation_8node {overlay}" for overlay in OVERLAYS]
    small = ["pretrain/pirl/quick_jigsaw", "pretrain/pirl/quick_jigsaw_baseline"]
    found = unread([*COMPLETE, *overlaid, *small], image_folder, tmp_path)
    assert [found.pop(name) for name in small] == [SUPERSEDED, SUPERSEDED]
    assert found == {name: [] for name in [*COMPLETE, *overlaid]}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("HOOKS.PIRL_INPUT.autocats", "the nearest are autocast"),
        ("LOSS.pirl_loss.bank.momentm", "'?momentm"),
        ("LOSS.pirl_loss.temprature", "'?temprature"),
        ("DATA.TRAIN.TRANSFORMS.0.patchsize", "patchsize = .*write patch_size"),
        ("MODEL.HEAD.PARAMS.0.1.use_relu", "'use_relu'"),
        ("MODEL.TRUNK.PIRL_RESNET.depth", r"PIRL_RESNET.depth = 1: .* the nearest are DEPTH"),
    ],
)
def test_our_parts__refuse_a_key_that_they_do_not_know(key, message):
    with pytest.raises(SystemExit, match=message):
        compose("config=pretrain/pirl/quick_jigsaw", f"+config.{key}=1")
