"""Which finished runs fill a row in the paper's tables, and which do not."""

import json

import numpy as np
import pytest
import torch
from paper_rows import DETECTION_IMAGES, IMAGES, PRETRAININGS
from paper_runs import read_run
from paper_tables import lay_out

from pirl_plugin.checkpoints.read import read_config
from tests.helpers.finished_runs import (
    composed,
    loaded_weights,
    measured,
    record,
    record_svm,
    write_checkpoint,
)
from tests.helpers.results_rows import detected, paper_rows

PIRL, BASELINE = "config=pretrain/pirl/jigsaw_8node", "config=pretrain/pirl/jigsaw_baseline_8node"
ONE_GPU = "+config/pirl/machines=1gpu"
IMAGENET, YFCC = 1_281_167, 1_000_000


def changed(config, changes):
    """Return a configuration with other values; missing keys are added."""
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = config
        for part in sections:
            section = section.setdefault(part, {})
        section[name] = value
    return config


def trained(folder, *overrides, epochs=None, images=IMAGENET, name=None, **changes):
    """Write a pre-training checkpoint with its record but without weights."""
    config = changed(composed(*overrides), changes.pop("changes", {}))
    epochs = epochs or config["OPTIMIZER"]["num_epochs"]
    section = {**loaded_weights(config), "images": {"TRAIN": {"count": images}}, **changes}
    file = folder / (name or f"model_final_checkpoint_phase{epochs - 1}.torch")
    write_checkpoint(file, config, epochs, **section)
    return file


def benchmark(folder, checkpoint, column="ImageNet", changes=None, **settings):
    """Write the folder of a finished benchmark with other values."""
    run = measured(folder, checkpoint, column=column, **settings)
    if changes:
        config = changed(read_config(run / "train_config.yaml"), changes)
        record_svm(run, config) if column == "VOC07" else record(run, config)
    return run


ANY_RUN = {  # key -> a value that cannot affect results
    "SEED_VALUE": 5,
    "LOSS.pirl_loss.bank.seed": 7,
    "DATA.TRAIN.DATA_PATHS": ["/elsewhere/train"],
    "DISTRIBUTED.NUM_NODES": 16,  # with the same global batch
    "DISTRIBUTED.NUM_PROC_PER_NODE": 8,
    "DATA.TRAIN.BATCHSIZE_PER_REPLICA": 8,
}


def test_pretraining__fills_row_despite_irrelevant_changes(tmp_path):
    run = read_run(benchmark(tmp_path / "run", trained(tmp_path / "made", PIRL, changes=ANY_RUN)))
    assert (run.row, run.differs) == ("PIRL", {})
    assert (2, "PIRL") in paper_rows(lay_out([run]))
    assert run.unknown == ["its number of TRAIN images", "its number of TEST images"]


@pytest.mark.parametrize(
    ("batches", "expected"), [([256], "256"), ([256, 1024], "256, then 1024"), ([1024], None)]
)
def test_pretraining__with_other_batch_at_any_time_fills_no_row(batches, expected, tmp_path):
    """The last command uses the paper's batch size."""
    made = trained(tmp_path / "made", PIRL, global_batches=batches)
    run = read_run(benchmark(tmp_path / "run", made))
    batch = {} if expected is None else {"pre-training global batch": (expected, 1024)}
    assert run.differs == batch


def test_images__are_identified_by_count_in_any_storage(tmp_path):
    overlay = "+config/pirl/datasets=shards"
    rows = {}
    for images in (IMAGENET, YFCC, IMAGENET - 1):
        made = trained(tmp_path / f"{images}", PIRL, overlay, images=images)
        folder = measured(tmp_path / f"run{images}", made, overlay)
        finish(folder, {"TRAIN": IMAGENET, "TEST": 50_000})
        run = read_run(folder)
        rows[images] = (run.row, list(run.differs))
    assert rows == {
        IMAGENET: ("PIRL", []),
        YFCC: ("PIRL (YFCC-1M)", []),
        IMAGENET - 1: ("PIRL", ["pre-training DATA.TRAIN.DATA_PATHS"]),
    }


def finish(folder, images, **classes):
    """Write a benchmark's checkpoint with its image counts, and digests of its labels."""
    identities = {split: {"count": count} for split, count in images.items()}
    for split, digest in classes.items():
        identities[split]["classes"] = digest
    return record(folder, read_config(folder / "train_config.yaml"), images=identities)


def test_benchmark__on_one_gpu_fills_row(tmp_path):
    """As documented in the guide: the learning rate follows the batch size."""
    made = trained(tmp_path / "made", PIRL)
    for column in ("ImageNet", "1 %", "VOC07"):
        run = read_run(measured(tmp_path / column, made, ONE_GPU, column=column))
        assert (run.row, run.differs) == ("PIRL", {})


def test_benchmark__on_fewer_images_fills_no_row(tmp_path):
    folder = measured(tmp_path / "run", trained(tmp_path / "made", PIRL))
    finish(folder, {"TRAIN": 100, "TEST": 50_000})
    run = read_run(folder)
    assert run.differs == {"DATA.TRAIN.DATA_PATHS": ("100 images", "1,281,167")}
    assert run.unknown == []


def test_svm__counts_images_by_features(tmp_path):
    """Two ranks, one of which repeats an image so that both have equally many."""
    made = trained(tmp_path / "made", PIRL)
    numbers = IMAGES["voc07"]
    for left_out in (0, 1):
        folder = benchmark(tmp_path / f"run{left_out}", made, "VOC07", {"SVM.dual": False})
        for split, number in numbers.items():
            rows = np.arange(number - left_out)
            for rank, of_rank in enumerate((rows[::2], np.append(rows[1::2], 0))):
                name = f"rank{rank}_chunk0_{split.lower()}_conv1_inds.npy"
                np.save(folder / name, of_rank)
        run = read_run(folder)
        differs = {}
        if left_out:
            differs["DATA.TRAIN.DATA_PATHS"] = ("5,010 images", "5,011")
            differs["DATA.TEST.DATA_PATHS"] = ("4,951 images", "4,952")
        assert (run.differs, run.unknown) == (differs, [])


def test_trunk__trained_with_labels_fills_no_row(tmp_path):
    """Fine-tuning changes the trunk, but a benchmark with a frozen trunk does not."""
    made = trained(tmp_path / "made", PIRL)
    weights = {"MODEL.WEIGHTS_INIT.PARAMS_FILE": str(made)}
    unfrozen = {**weights, "MODEL.FEATURE_EVAL_SETTINGS.FREEZE_TRUNK_ONLY": False}
    linear = "config=benchmark/pirl/linear_imagenet1k"
    finetune = "config=benchmark/pirl/finetune"
    between = {
        "linear": trained(tmp_path / "linear", linear, changes=weights),
        "all layers": trained(tmp_path / "all layers", linear, changes=unfrozen),
        "finetune": trained(tmp_path / "finetune", finetune, changes=weights),
    }
    for name, checkpoint in between.items():
        run = read_run(measured(tmp_path / f"{name} measured", checkpoint))
        labels = {} if name == "linear" else {"then trained with labels": (name, "no")}
        assert (run.row, run.differs) == ("PIRL", labels)


def test_row__is_filled_by_matching_config(tmp_path, subtests):
    for row, overrides in PRETRAININGS.items():
        with subtests.test(row=row):
            images = YFCC if "YFCC" in row else IMAGENET
            checkpoint = trained(tmp_path / f"{row} made", *overrides, images=images)
            wide = ("+config/pirl/linear=resnet50_c2x",) if row == "PIRL-c2x" else ()
            run = read_run(measured(tmp_path / row, checkpoint, *wide))
            assert (run.row, run.differs) == (row, {})
            assert row in {name for _, name in paper_rows(lay_out([run]))}


def test_row__is_filled_by_ensemble_random_weights_and_link(tmp_path):
    files = [str(trained(tmp_path / f"{i}", PIRL, changes={"SEED_VALUE": i})) for i in range(2)]
    ensemble = composed("config=benchmark/pirl/ensemble_imagenet1k")
    run = measured(tmp_path / "ensemble", "")
    record(run, changed(ensemble, {"MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": files}))
    top1 = {"train_phase_idx": 55, "test_accuracy_list_meter": {"top_1": {"res5": 65.0}}}
    (run / "metrics.json").write_text(json.dumps(top1))
    assert (read_run(run).row, read_run(run).differs) == ("PIRL-ens", {})
    record(run, changed(ensemble, {"MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": files[:1] * 2}))
    assert "two PIRL runs" in str(read_run(run).differs)
    random = read_run(measured(tmp_path / "random", ""))
    assert (random.row, random.differs) == ("Random", {})
    link = tmp_path / "0" / "checkpoint.torch"
    link.symlink_to(files[0])
    assert read_run(measured(tmp_path / "linked", link)).differs == {}


FOREIGN_PRETRAININGS = {  # key -> different value, for VISSL, the loss, a list and hooks
    "OPTIMIZER.num_epochs": 801,
    "LOSS.pirl_loss.bank.dtype": "bfloat16",
    "HOOKS.PIRL_INPUT.autocast": "bfloat16",
    "MODEL.WEIGHTS_INIT.PARAMS_FILE": "/other/weights.torch",
}


def test_foreign_pretraining__names_keys(tmp_path):
    made = trained(tmp_path / "made", PIRL, changes=FOREIGN_PRETRAININGS)
    run = read_run(benchmark(tmp_path / "run", made))
    expected = {f"pre-training {key}" for key in FOREIGN_PRETRAININGS}
    assert expected <= run.differs.keys(), expected - run.differs.keys()
    assert paper_rows(lay_out([run])) == []
    assert run.label.startswith("run, not PIRL: pre-training ")
    phrases = run.label.partition(": ")[2].split("; ")
    assert len(phrases) == 4  # three keys, and the number of other keys
    assert all(len(phrase) <= 80 for phrase in phrases)


FOREIGN_BENCHMARKS = {  # column -> key and different value
    "ImageNet": ("DATA.TRAIN.BATCHSIZE_PER_REPLICA", 4),  # on 8 GPUs
    "VOC07": ("SVM.costs.costs_list", [1.0]),
    "1 %": ("OPTIMIZER.param_schedulers.lr.values", [0.1, 0.01]),
}


def test_foreign_benchmark__names_keys(tmp_path, subtests):
    made = trained(tmp_path / "made", PIRL)
    for column, (key, value) in FOREIGN_BENCHMARKS.items():
        with subtests.test(column=column):
            run = read_run(benchmark(tmp_path / column, made, column, {key: value}))
            named = "global batch" if "BATCHSIZE" in key else key
            assert any(each.startswith(named) for each in run.differs), run.differs
            assert paper_rows(lay_out([run])) == []


def test_foreign_run__is_detected_by_recorded_epochs_and_images(tmp_path):
    """File names do not matter: a link to epoch 10, or 100 images from YFCC."""
    early = trained(tmp_path / "early", PIRL, epochs=10, name="weights.torch")
    link = early.with_name("checkpoint.torch")
    link.symlink_to(early.name)
    for number, file in enumerate((early, link)):
        run = read_run(measured(tmp_path / f"epochs{number}", file))
        assert run.differs == {"pre-training epochs done": (10, 800)}
    yfcc = trained(tmp_path / "made", PIRL, "+config/pirl/datasets=yfcc1m", images=100)
    run = read_run(measured(tmp_path / "few", yfcc))
    assert run.row == "PIRL (YFCC-1M)"
    assert list(run.differs) == ["pre-training DATA.TRAIN.DATA_PATHS"]
    assert "DATA.TRAIN.DATA_PATHS 100 images (1," in run.label


def test_foreign_weights__fill_no_row(tmp_path):
    better = tmp_path / "resnet50-11ad3fa6.pth"  # torchvision's second ResNet-50
    named = tmp_path / "resnet50-19c8e357.pth"  # named like torchvision's first, with other content
    beside = trained(tmp_path / "made", PIRL).with_name("other.pth")  # beside train_config.yaml
    for file in (better, named, beside):
        torch.save({}, file)
        assert paper_rows(lay_out([read_run(measured(tmp_path / file.stem, file))])) == []


@pytest.mark.parametrize("kind", ["linear", "svm", "detection"])
def test_origin__is_as_when_the_weights_were_loaded(kind, tmp_path):
    """The checkpoint is then replaced by one that would fill the row."""
    made = trained(tmp_path / "made", PIRL, epochs=400)
    if kind == "detection":
        folder = detected(tmp_path / "run", weights=made, images=DETECTION_IMAGES)
    else:
        folder = measured(tmp_path / "run", made, column="VOC07" if kind == "svm" else "ImageNet")
    trained(tmp_path / "made", PIRL, name=made.name)
    run = read_run(folder)
    assert run.differs == {"pre-training epochs done": (400, 800)}
    assert paper_rows(lay_out([run])) == []


def test_right_run__may_have_moved_weights_and_other_test_epochs(tmp_path):
    changes = {"TEST_EVERY_NUM_EPOCH": 7}
    run = benchmark(tmp_path / "run", trained(tmp_path / "made", PIRL), changes=changes)
    (tmp_path / "made").rename(tmp_path / "moved")
    assert (read_run(run).row, read_run(run).differs) == ("PIRL", {})


def test_runs__with_other_layers_or_labels_are_separate_rows(tmp_path):
    made = trained(tmp_path / "made", PIRL)
    skipping = {"MODEL.WEIGHTS_INIT.SKIP_LAYERS": ["layer4"]}
    folders = [measured(tmp_path / f"run{number}", made) for number in range(3)]
    for folder, digest in zip(folders, "aab", strict=True):
        finish(folder, IMAGES["imagenet1k"], TRAIN=digest, TEST="a")
    folders.append(benchmark(tmp_path / "skipping", made, changes=skipping))
    (table,) = [table for table in lay_out([*map(read_run, folders)]) if table["number"] == 2]
    filled = {row["method"]: row for row in table["rows"] if row["measured"][0] is not None}
    assert [len(row["runs"][0]) for row in filled.values()] == [2, 1, 1]
    keys = [key for row in filled.values() for key in row["differs"]]
    assert keys == ["DATA.TRAIN labels", "MODEL.WEIGHTS_INIT.SKIP_LAYERS"]


def test_moco__fills_row_by_published_digest(tmp_path):
    for digest, row in (("b251726a00", "MoCo"), ("59fd994500", "moco")):
        weights = tmp_path / digest / "moco" / "weights.pth.tar"
        folder = tmp_path / f"{digest} measured"
        run = read_run(detected(folder, "voc0712_moco24k", weights, weights_md5=digest))
        assert (run.row, not run.differs) == (f"{row} (BatchNorm fine-tuned)", row == "MoCo")


def test_host__may_have_other_defaults(tmp_path):
    """Keys that only one VISSL has do not count at its default."""
    added = {"HOOKS.EMA_MODEL": {"DECAY": 0.9}, "MODEL.TRUNK.SWIN_TRANSFORMER": {"DEPTH": 2}}
    at_default = ["HOOKS.EMA_MODEL.DECAY", "MODEL.TRUNK.SWIN_TRANSFORMER.DEPTH"]
    recorded = composed(PIRL)["HOST_DEFAULTS"]
    assert "MODEL.GRAD_CLIP.USE_GRAD_CLIP" in recorded
    assert "LOSS.name" not in recorded
    for number, known in enumerate((at_default, at_default[1:])):
        changes = {**added, "HOST_DEFAULTS": known}
        made = trained(tmp_path / f"made{number}", PIRL, changes=changes)
        run = read_run(benchmark(tmp_path / f"run{number}", made))
        differs = [] if known == at_default else ["pre-training HOOKS.EMA_MODEL.DECAY"]
        assert list(run.differs) == differs


FOREIGN_DETECTIONS = {
    "an option": {"options": ["SOLVER.BASE_LR", "0.02"]},
    "another schedule": {"config": "voc0712_supervised_jigsaw"},
    "a part of the images": {"images": {**DETECTION_IMAGES, "voc_2007_test": 100}},
}


def test_foreign_detection__fills_no_row(tmp_path, subtests):
    weights = trained(tmp_path / "made", PIRL)
    for name, settings in FOREIGN_DETECTIONS.items():
        with subtests.test(name=name):
            run = read_run(detected(tmp_path / name, weights=weights, **settings))
            assert run.differs
            assert paper_rows(lay_out([run])) == []


def test_detection__fills_row_on_any_number_of_gpus(tmp_path):
    rows = {
        "PIRL": ("voc0712_pirl", PIRL),
        "Jigsaw": ("voc0712_supervised_jigsaw", BASELINE),
    }
    for number, (row, (config, overrides)) in enumerate(rows.items()):
        weights = trained(tmp_path / f"{row} made", overrides)
        free = ["SEED", "3", "DATALOADER.NUM_WORKERS", "9"]
        more = {"images": DETECTION_IMAGES, "num_gpus": 1 + number}
        run = read_run(detected(tmp_path / row, config, weights, options=free, **more))
        assert (run.row, run.differs, run.tables) == (row, {}, (1,))
        assert run.unknown == []
    weights = trained(tmp_path / "made", PIRL)
    run = read_run(detected(tmp_path / "voc07", "voc07_pirl", weights, finished=3))
    assert (run.tables, run.unknown) == (
        (6,),
        ["how many images it used", "the AP of 2 of 5 trials"],
    )
    norm = read_run(detected(tmp_path / "norm", "voc0712_moco24k", weights, num_gpus=1))
    assert norm.differs == {"num_gpus": (1, 8)}  # BatchNorm is trained
