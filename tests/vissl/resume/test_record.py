"""Whether a run is the same, or the paper's: one comparison between complete configurations."""

import json

import pytest
import torch
import yaml
from safetensors.torch import save_file

from pirl_plugin.system.comparison import format_differences
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import digest_of
from pirl_plugin.vissl.configs import composed_text
from pirl_plugin.vissl.resume.record import (
    FREE,
    GLOBAL_BATCH,
    RESUMING,
    hash_weights,
    make_checkpoint_record,
    read_origin,
    refuse_other_images,
    run_differences,
)
from pirl_plugin.vissl.sections import RECORD
from tests.helpers.configs import compose
from tests.helpers.host_tools import write_checkpoint

QUICK = "config=pretrain/pirl/quick_jigsaw"
PAPERS = ("config=pretrain/pirl/jigsaw_8node", "config.DATA.TRAIN.DATA_PATHS=[images]")
LINEAR = ("config=benchmark/pirl/linear_imagenet1k", "config.DATA.TRAIN.DATA_PATHS=[a]",
    "config.DATA.TEST.DATA_PATHS=[b]")  # fmt: skip


def recorded(*overrides):
    return compose(*overrides)[RECORD]


def changed(free, config, *overrides):
    """Return the differences that overrides cause."""
    return run_differences(recorded(*config, *overrides), recorded(*config), free)


def test_bank__is_replicated_or_sharded_to_the_end():
    """A checkpoint of one kind lacks the rows for the other."""
    sharded = "config.LOSS.pirl_loss.bank.placement=sharded"
    assert list(changed(RESUMING, PAPERS, sharded)) == ["LOSS.pirl_loss.bank.placement"]
    assert changed(FREE, PAPERS, sharded) == {}


@pytest.mark.parametrize("free", [RESUMING, FREE])
def test_same_run__may_differ_in_environment(free):
    """Workers, logging, machine and paths affect how a run is done, not its result."""
    overrides = [
        "config.CHECKPOINT.DIR=elsewhere",
        "config.DATA.TRAIN.DATA_PATHS=[elsewhere]",
        "config.DATA.NUM_DATALOADER_WORKERS=3",
        "config.LOG_FREQUENCY=1",
        "config.HOOKS.TENSORBOARD_SETUP.USE_TENSORBOARD=true",
        "config.HOOKS.PIRL_RUN.timeout_minutes=1",
        "+config/pirl/machines=4node_8gpu",  # 1,024 images, as in the paper
    ]
    assert changed(free, PAPERS, *overrides) == {}


def test_number_of_ranks__may_change_only_on_resume():
    eight = "+config/pirl/machines=1node_8gpu"
    assert changed(RESUMING, PAPERS, eight) == {}
    assert changed(FREE, PAPERS, eight) == {GLOBAL_BATCH: (256, 1024)}
    assert changed(FREE, PAPERS, eight, "config.TRAINER.PIRL_MICRO_BATCHES=4") == {}


def test_record__keeps_all_global_batches_on_resume():
    record = None
    for machine in ("8node", "1node_8gpu", "4node_8gpu"):
        record = make_checkpoint_record(
            compose(*PAPERS, f"+config/pirl/machines={machine}"), {}, record
        )
    assert record["global_batches"] == [1024, 256]


def test_seed__is_fixed_on_resume():
    assert changed(RESUMING, PAPERS, "config.SEED_VALUE=7") == {"SEED_VALUE": (7, 0)}


def test_different_run__is_named_by_changed_key():
    expected = {
        "HOOKS.PIRL_INPUT.autocast": ("bfloat16", None),
        "DATA.TRAIN.DATA_LIMIT": (100, -1),
        "DATA.TRAIN.VIEWS.patch_size": (32, 64),
        "DATA.MEAN": ([0.5, 0.5, 0.5], [0.485, 0.456, 0.406]),
        "MODEL.HEAD.HIDDEN_DIM": (96, None),
        "MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN": (True, False),
        "MODEL.WEIGHTS_INIT.PARAMS_FILE": ("w.pth", ""),
        "LOSS.pirl_loss.temperature": (0.5, 0.07),
        "OPTIMIZER.weight_decay": (0.001, 0.0001),
        "OPTIMIZER.momentum": (0.8, 0.9),
        "OPTIMIZER.nesterov": (True, False),
        "OPTIMIZER.num_epochs": (7, 800),
        "OPTIMIZER.regularize_bn": (True, False),
        "OPTIMIZER.regularize_bias": (True, False),
    }
    overrides = [
        f"config.{key}={str(value).replace(' ', '')}" for key, (value, _) in expected.items()
    ]
    expected["HOOKS.PIRL_INPUT.mean"] = expected["DATA.MEAN"]  # refers to it
    for free in (RESUMING, FREE):
        assert changed(free, PAPERS, *overrides) == expected


def test_rates__are_compared_as_configured_for_any_batch():
    lr = "OPTIMIZER.param_schedulers.lr"
    batch = "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=2"
    for config in (PAPERS, LINEAR):  # cosine and step schedules: VISSL scales all rates
        assert changed(RESUMING, config, batch) == {}
        base = changed(RESUMING, config, batch, f"config.{lr}.auto_lr_scaling.base_value=0.3")
        assert list(base) == [f"{lr}.auto_lr_scaling.base_value"]
    last = changed(RESUMING, PAPERS, batch, f"config.{lr}.end_value=0.0012")
    assert list(last) == [f"{lr}.end_value"]


def test_benchmark__comparison_includes_test_images_and_svms():
    overrides = ["config.DATA.TEST.RESIZE=224", "config.SVM.normalize=false"]
    assert changed(FREE, LINEAR, *overrides) == {
        "DATA.TEST.RESIZE": (224, 256),
        "SVM.normalize": (False, True),
    }


def test_other_loss_sections__are_not_compared():
    assert changed(RESUMING, PAPERS, "config.LOSS.simclr_info_nce_loss.temperature=9") == {}
    baseline = recorded("config=pretrain/pirl/jigsaw_baseline_8node")
    assert run_differences(baseline, recorded(*PAPERS), FREE)["LOSS.name"][1] == "pirl_loss"


def test_initial_weights__are_compared_by_content(tmp_path, monkeypatch):
    files = [tmp_path / name for name in ("a.pth", "b.pth")]
    for number, file in enumerate(files):
        torch.save({"a": torch.full((3,), float(number))}, file)
    key = "MODEL.WEIGHTS_INIT.PARAMS_FILE"
    before = recorded(*PAPERS, f"config.{key}={files[0]}")
    files[0].rename(tmp_path / "moved.pth")
    for file, expected in ((tmp_path / "moved.pth", []), (files[1], [key])):
        now = recorded(*PAPERS, f"config.{key}={file}")
        assert list(run_differences(now, before, RESUMING)) == expected
    assert list(run_differences(recorded(*PAPERS), before, RESUMING)) == [key]
    monkeypatch.chdir(tmp_path)
    relative = json.loads(recorded(*PAPERS, f"config.{key}=b.pth").config)
    assert relative["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"] == str(files[1])


def test_initial_weights__differ_despite_same_size_and_end(tmp_path):
    """safetensors files have no checksums at the end, unlike those from ``torch.save``."""
    tensors = torch.zeros(1 << 16)
    contents = []
    for first in (0.0, 1.0):
        tensors[0] = first
        save_file({"weight": tensors}, tmp_path / "trunk.safetensors")
        initial = {"PARAMS_FILE": str(tmp_path / "trunk.safetensors")}
        contents.append(hash_weights({"MODEL": {"WEIGHTS_INIT": initial, "TRUNK": {}}}))
    assert contents[0] != contents[1]


def test_origin__is_only_known_for_checkpoints_from_runs(tmp_path):
    write_checkpoint(tmp_path / "made.torch")  # as a command writes weights
    torch.save([1, 2], tmp_path / "list.pth")
    for file in (*tmp_path.iterdir(), tmp_path / "missing.pth", tmp_path):
        assert read_origin(file) == {}


def test_format_differences__shows_three_keys_of_80_characters():
    differs = {f"LONG.{'KEY' * 30}.{number}": (number, [0.5]) for number in range(5)}
    phrases = format_differences(differs).split("; ")
    assert [len(phrase) for phrase in phrases] == [80, 80, 80, 6]
    assert phrases[-1] == "2 more"
    assert format_differences({"A.B": (None, "")}, "{key} {value} ({expected})") == 'A.B null ("")'


def test_images__are_compared_by_list():
    section = {"images": {"TRAIN": {"count": 2, "paths": digest_of(["/a/1", "/a/2"], "/a")}}}
    same = {"count": 2, "paths": digest_of(["/b/1", "/b/2"], "/b")}  # a moved folder
    other = {"count": 2, "paths": digest_of(["/a/2", "/a/1"], "/a")}
    refuse_other_images({"TRAIN": same, "TEST": other}, section, "FILE")
    with pytest.raises(Refused, match=r"FILE is from .* \(2 images, now 2\)"):
        refuse_other_images({"TRAIN": other}, section, "FILE")


def test_computed_values__are_compared(image_folder):
    """The patch size follows the image size; resuming compares it too."""
    config = ["config=pretrain/pirl/own_images", "+config/pirl/machines=cpu"]
    data = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    size = "config.DATA.TRAIN.VIEWS.image_size"
    runs = [recorded(*config, data, f"{size}={pixels}") for pixels in (112, 224)]
    differing = run_differences(runs[0], runs[1], RESUMING)
    assert differing["DATA.TRAIN.VIEWS.patch_size"] == (32, 64)
    shown = yaml.safe_load(composed_text(config))
    assert shown["DATA"]["TRAIN"]["VIEWS"]["patch_size"] == 64
