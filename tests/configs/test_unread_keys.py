"""No key of a config is one that nothing reads, and a key in the wrong place does not pass."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from classy_vision.dataset.transforms import build_transform
from vissl.hooks import add_loss_hooks
from vissl.models import build_model
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.losses.pirl_loss import PIRLLoss

# Read only where there is a checkpoint to resume from; test_run_host.py resumes.
WITH_A_CHECKPOINT = "CHECKPOINT.AUTO_RESUME"
SLOW = [
    "jigsaw_8node",
    "rotation_8node",
    "rotation_jigsaw_8node",
    "npid_8node",
    "npidpp_8node",
    "jigsaw_baseline_8node",
    "rotation_baseline_8node",
    "quick_jigsaw",
]
PLANTED = """\
# @package _global_
defaults:
  - /config/pretrain/pirl/npid_8node
  - /config/pirl/models/resnet18
  - _self_
config:
  HOOKS:
    PIRL_INPTU: {autocast: bfloat16}
  DATA:
    TRAIN:
      BATCH_SIZE: 4
  MODEL:
    HEAD:
      PARAMS: [["mlp", {"dims": [512, 512, 128]}, "use_relu": True]]
  OPTIMIZER:
    param_schedulers:
      lr:
        strat_value: 0.3
"""


def unread(name, data, folder, *overrides):
    """What ``unread_keys.py`` finds in a run of two steps on a CPU."""
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "unread_keys.py"),
        name,
        "+config/pirl/machines=cpu",
        f"config.DATA.TRAIN.DATA_PATHS=[{data / 'val'}]",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        "config.DATA.TRAIN.TRANSFORMS.0.backend=pil",
        "config.OPTIMIZER.num_epochs=1",
        f"config.CHECKPOINT.DIR={folder / 'out'}",
        *overrides,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert WITH_A_CHECKPOINT in found  # the check works at all
    return [key for key in found if key != WITH_A_CHECKPOINT]


def test_unread_keys__are_found_where_they_are_planted(image_folder, tmp_path):
    """One is VISSL's ``use_relu``, outside the options of the head that it was meant for."""
    file = tmp_path / "configs" / "config" / "planted" / "misplaced.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(PLANTED)
    assert unread("planted/misplaced", image_folder, tmp_path) == [
        "DATA.TRAIN.BATCH_SIZE",
        "HOOKS.PIRL_INPTU.autocast",
        "MODEL.HEAD.PARAMS.0.2.use_relu",
        "OPTIMIZER.param_schedulers.lr.strat_value",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_pretraining_configs__have_no_key_that_nothing_reads(name, image_folder, tmp_path):
    assert unread(f"pretrain/pirl/{name}", image_folder, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "overlay",
    [
        "models=resnet50_mlp", "models=resnet18", "transforms=gaussian_blur", "bank=sharded",
        "datasets=folder", "datasets=imagenet1k", "epochs=analysis_400",
    ],
)  # fmt: skip
def test_overlays__have_no_key_that_nothing_reads(overlay, image_folder, tmp_path):
    found = unread(
        "pretrain/pirl/rotation_8node", image_folder, tmp_path, f"+config/pirl/{overlay}"
    )
    assert found == []


def build_heads(config):
    build_model(config.MODEL, config.OPTIMIZER)


@pytest.mark.parametrize(
    ("key", "build", "message"),
    [
        ("HOOKS.PIRL_INPUT.autocats", lambda c: add_loss_hooks([], c.LOSS, c), "'autocats'"),
        (
            "LOSS.pirl_loss.bank.momentm",
            lambda c: PIRLLoss.from_config(c.LOSS.pirl_loss),
            "bank has no key 'momentm'",
        ),
        (
            "LOSS.pirl_loss.temprature",
            lambda c: PIRLLoss.from_config(c.LOSS.pirl_loss),
            "pirl_loss has no key 'temprature'",
        ),
        (
            "DATA.TRAIN.TRANSFORMS.0.patchsize",
            lambda c: build_transform(c.DATA.TRAIN.TRANSFORMS[0]),
            "unknown parameter patchsize",
        ),
        ("MODEL.HEAD.PARAMS.0.1.use_relu", build_heads, "'use_relu'"),
        ("MODEL.TRUNK.PIRL_RESNET.depth", build_heads, "PIRL_RESNET has no key 'depth'"),
    ],
)
def test_our_parts__refuse_a_key_that_they_do_not_know(key, build, message):
    overrides = ["config=pretrain/pirl/quick_jigsaw", f"+config.{key}=1"]
    _, config = convert_to_attrdict(compose_hydra_configuration(overrides), dump_config=False)
    with pytest.raises((ValueError, TypeError), match=message):
        build(config)
