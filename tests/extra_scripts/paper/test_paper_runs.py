"""Which finished runs fill a row of the paper's tables, and which do not."""

import json

import numpy as np
import pytest
import torch
from paper_rows import DETECTION_IMAGES, IMAGES
from paper_runs import compose, read_run
from paper_tables import lay_out

from pirl_plugin.checkpoints.read import SECTION, read_config
from pirl_plugin.vissl.resume.record import hash_weights, read_composed, write_weights
from tests.helpers.finished_runs import measured, pretrained, write_run
from tests.helpers.results_rows import detected, paper_rows

PIRL, BASELINE = "config=pretrain/pirl/jigsaw_8node", "config=pretrain/pirl/jigsaw_baseline_8node"
ONE_GPU = "+config/pirl/machines=1gpu"
IMAGENET, YFCC = 1_281_167, 1_000_000


def composed(*overrides):
    """A configuration as a run records it; the same composition serves many tests."""
    return read_composed(compose(*overrides))


def changed(config, changes):
    """A configuration with other values; a key that the run does not have is added."""
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = config
        for part in sections:
            section = section.setdefault(part, {})
        section[name] = value
    return config


def trained(folder, *overrides, epochs=None, images=IMAGENET, name=None, **changes):
    """A checkpoint of a pre-training with its record, and without weights."""
    config = changed(composed(*overrides), changes.pop("changes", {}))
    epochs = epochs or config["OPTIMIZER"]["num_epochs"]
    section = {"config": json.dumps(config), "images": {"TRAIN": {"count": images}}, **changes}
    content = {
        "classy_state_dict": {"hooks": {SECTION: section}},
        "train_phase_idx": epochs - 1,
    }
    write_run(folder, config)
    file = folder / (name or f"model_final_checkpoint_phase{epochs - 1}.torch")
    torch.save(content, file)
    return file


def benchmark(folder, checkpoint, column="ImageNet", changes=None, **settings):
    """The folder of a finished benchmark with other values."""
    run = measured(folder, checkpoint, column=column, **settings)
    if changes:
        write_run(run, changed(read_config(run / "train_config.yaml"), changes))
    return run


ANY_RUN = {  # key -> a value that cannot change a result
    "SEED_VALUE": 5,
    "LOSS.pirl_loss.bank.seed": 7,
    "LOSS.pirl_loss.bank.placement": "sharded",
    "LOG_FREQUENCY": 1,
    "DATA.NUM_DATALOADER_WORKERS": 31,
    "DATA.PIN_MEMORY": False,
    "DATA.TRAIN.DATA_PATHS": ["/elsewhere/train"],
    "CHECKPOINT.DIR": "/elsewhere",
    "CHECKPOINT.PIRL.KEEP_LAST": "all",
    "CHECKPOINT.CHECKPOINT_FREQUENCY": 3,
    "HOOKS.PIRL_RUN.timeout_minutes": 99,
    "HOOKS.PIRL_MONITOR.every": 10,
    "HOOKS.TENSORBOARD_SETUP.USE_TENSORBOARD": True,
    "DISTRIBUTED.RUN_ID": "host:29500",
    "SLURM.USE_SLURM": True,
    "TRAINER.PIRL_MICRO_BATCHES": 4,
    "MACHINE.DEVICE": "cpu",
    "PROFILING.RUNTIME_PROFILING.USE_PROFILER": True,
}


def test_pretraining__fills_its_row_whatever_cannot_change_a_result(tmp_path):
    run = read_run(benchmark(tmp_path / "run", trained(tmp_path / "made", PIRL, changes=ANY_RUN)))
    assert (run.row, run.differs) == ("PIRL", {})
    assert (2, "PIRL") in paper_rows(lay_out([run]))
    assert run.unknown == [
        "whether model_final_checkpoint_phase799.torch has changed since it was measured",
        "its number of TRAIN images",
        "its number of TEST images",
    ]


MACHINES = {"4node_8gpu": (4, 8, 32), "128 GPUs": (16, 8, 8), "one": (1, 1, 1024)}


def test_pretraining__fills_its_row_with_the_same_global_batch(tmp_path, subtests):
    for machine, (nodes, processes, batch) in MACHINES.items():
        with subtests.test(machine=machine):
            split = {
                "DISTRIBUTED.NUM_NODES": nodes,
                "DISTRIBUTED.NUM_PROC_PER_NODE": processes,
                "DATA.TRAIN.BATCHSIZE_PER_REPLICA": batch,
            }
            made = trained(tmp_path / f"{machine} made", PIRL, changes=split)
            run = read_run(benchmark(tmp_path / machine, made))
            assert (run.row, run.differs) == ("PIRL", {})


@pytest.mark.parametrize(
    ("batches", "expected"), [([256], "256"), ([256, 1024], "256, then 1024"), ([1024], None)]
)
def test_pretraining__with_another_batch_at_any_time_fills_no_row(batches, expected, tmp_path):
    """The last command has the paper's batch."""
    made = trained(tmp_path / "made", PIRL, global_batches=batches)
    run = read_run(benchmark(tmp_path / "run", made))
    batch = {} if expected is None else {"pre-training global batch": (expected, 1024)}
    assert run.differs == batch


@pytest.mark.parametrize("storage", ["shards", "filelist"])
def test_images__are_known_by_their_number_in_any_storage(storage, tmp_path):
    overlay = f"+config/pirl/datasets={storage}"
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


def finish(folder, images, epochs=28):
    """The checkpoint of a benchmark, with the numbers of its images."""
    config = read_config(folder / "train_config.yaml")
    section = {"images": {split: {"count": count} for split, count in images.items()}}
    section |= {"config": json.dumps(config), "weights": hash_weights(config)}
    content = {"classy_state_dict": {"hooks": {SECTION: section}}, "train_phase_idx": epochs - 1}
    torch.save(content, folder / f"model_final_checkpoint_phase{epochs - 1}.torch")


def test_benchmark__on_one_gpu_fills_its_row(tmp_path):
    """As the guide says: its rate follows the batch."""
    made = trained(tmp_path / "made", PIRL)
    for column in ("ImageNet", "1 %", "VOC07"):
        run = read_run(measured(tmp_path / column, made, ONE_GPU, column=column))
        assert (run.row, run.differs) == ("PIRL", {})


def test_benchmark__on_a_part_of_its_images_fills_no_row(tmp_path):
    folder = measured(tmp_path / "run", trained(tmp_path / "made", PIRL))
    finish(folder, {"TRAIN": 100, "TEST": 50_000})
    run = read_run(folder)
    assert run.differs == {"DATA.TRAIN.DATA_PATHS": ("100 images", "1,281,167")}
    assert run.unknown == []


def test_svm__has_the_images_of_its_features(tmp_path):
    """Two ranks, which repeat an image, so that they have as many."""
    made = trained(tmp_path / "made", PIRL)
    numbers = IMAGES["voc07"]
    for left_out in (0, 1):
        folder = benchmark(tmp_path / f"run{left_out}", made, "VOC07", {"SVM.dual": False})
        for split, number in numbers.items():
            rows = np.arange(number - left_out)
            for rank, of_rank in enumerate((rows[::2], np.append(rows[1::2], 0))):
                name = f"rank{rank}_chunk0_{split.lower()}_conv1_inds.npy"
                np.save(folder / name, of_rank)
        write_weights(hash_weights(read_config(folder / "train_config.yaml")), folder)
        run = read_run(folder)
        differs = {}
        if left_out:
            differs["DATA.TRAIN.DATA_PATHS"] = ("5,010 images", "5,011")
            differs["DATA.TEST.DATA_PATHS"] = ("4,951 images", "4,952")
        assert (run.differs, run.unknown) == (differs, [])


def test_trunk__that_was_trained_with_labels_fills_no_row(tmp_path):
    """Fine-tuning changes the trunk, and a benchmark of a frozen trunk does not."""
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


ROWS = {  # row -> pre-training, images
    "PIRL-c2x": ((PIRL, "+config/pirl/models=resnet50_c2x"), IMAGENET),
    "PIRL (YFCC-1M)": ((PIRL, "+config/pirl/datasets=yfcc1m"), YFCC),
    "PIRL (Jigsaw)": ((PIRL, "+config/pirl/epochs=analysis_400"), IMAGENET),
    "PIRL (Rotation)": (("config=pretrain/pirl/rotation_8node",), IMAGENET),
    "PIRL (Rotation + Jigsaw)": (("config=pretrain/pirl/rotation_jigsaw_8node",), IMAGENET),
    "NPID++": (("config=pretrain/pirl/npidpp_8node",), IMAGENET),
    "NPID": (("config=pretrain/pirl/npid_8node",), IMAGENET),
    "Jigsaw": ((BASELINE,), IMAGENET),
    "Jigsaw (YFCC-1M)": ((BASELINE, "+config/pirl/datasets=yfcc1m"), YFCC),
    "Rotation": (("config=pretrain/pirl/rotation_baseline_8node",), IMAGENET),
}


def test_row__is_filled_by_its_config(tmp_path, subtests):
    for row in ROWS:
        with subtests.test(row=row):
            overrides, images = ROWS[row]
            checkpoint = trained(tmp_path / f"{row} made", *overrides, images=images)
            wide = ("+config/pirl/linear=resnet50_c2x",) if row == "PIRL-c2x" else ()
            run = read_run(measured(tmp_path / row, checkpoint, *wide))
            assert (run.row, run.differs) == (row, {})
            assert row in {name for _, name in paper_rows(lay_out([run]))}


COLUMNS = {"Places205": 2, "iNaturalist-2018": 2, "VOC07": 2, "1 %": 3, "10 %": 3}


def test_column__is_filled_by_its_benchmark(tmp_path, subtests):
    made = trained(tmp_path / "made", PIRL)
    for column in COLUMNS:
        with subtests.test(column=column):
            run = read_run(benchmark(tmp_path / column, made, column))
            assert (COLUMNS[column], "PIRL") in paper_rows(lay_out([run]))


def test_row__ensemble_random_and_a_link(tmp_path):
    files = [str(trained(tmp_path / f"{i}", PIRL, changes={"SEED_VALUE": i})) for i in range(2)]
    ensemble = composed("config=benchmark/pirl/ensemble_imagenet1k")
    run = measured(tmp_path / "ensemble", "")
    write_run(run, changed(ensemble, {"MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": files}))
    top1 = {"train_phase_idx": 55, "test_accuracy_list_meter": {"top_1": {"res5": 65.0}}}
    (run / "metrics.json").write_text(json.dumps(top1))
    (run / "model_final_checkpoint_phase27.torch").rename(
        run / "model_final_checkpoint_phase55.torch"
    )
    assert (read_run(run).row, read_run(run).differs) == ("PIRL-ens", {})
    write_run(run, changed(ensemble, {"MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": files[:1] * 2}))
    assert "two runs of PIRL" in str(read_run(run).differs)
    random = read_run(measured(tmp_path / "random", ""))
    assert (random.row, random.differs) == ("Random", {})
    link = tmp_path / "0" / "checkpoint.torch"
    link.symlink_to(files[0])
    assert read_run(measured(tmp_path / "linked", link)).differs == {}


FOREIGN_PRETRAININGS = {  # key -> another value
    "OPTIMIZER.momentum": 0.99,
    "OPTIMIZER.nesterov": True,
    "OPTIMIZER.regularize_bn": True,
    "OPTIMIZER.regularize_bias": True,
    "OPTIMIZER.weight_decay": 1e-5,
    "OPTIMIZER.name": "adam",
    "OPTIMIZER.num_epochs": 801,
    "OPTIMIZER.param_schedulers.lr.auto_lr_scaling.base_value": 0.06,
    "OPTIMIZER.param_schedulers.lr.update_interval": "step",
    "DATA.MEAN": [0.5, 0.5, 0.5],
    "DATA.STD": [0.5, 0.5, 0.5],
    "DATA.TRAIN.DATA_LIMIT": 1000,
    "DATA.TRAIN.DATASET_NAMES": ["pirl_photos"],
    "LOSS.pirl_loss.num_negatives": 2048,
    "LOSS.pirl_loss.lambda_invariance": 0.75,
    "LOSS.pirl_loss.temperature": 0.2,
    "LOSS.pirl_loss.estimator": "info_nce",
    "LOSS.pirl_loss.replacement": False,
    "LOSS.pirl_loss.negatives": "per_batch",
    "LOSS.pirl_loss.norm_constant": 1e6,
    "LOSS.pirl_loss.bank.momentum": 0.9,
    "LOSS.pirl_loss.bank.init": "embeddings",
    "LOSS.pirl_loss.bank.dtype": "bfloat16",
    "HOOKS.PIRL_INPUT.autocast": "bfloat16",
    "MODEL.AMP_PARAMS.USE_AMP": True,
    "MODEL.WEIGHTS_INIT.PARAMS_FILE": "/other/weights.torch",
    "MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN": True,
    "MODEL.TRUNK.RESNETS.DEPTH": 101,
    "MODEL.HEAD.HIDDEN_DIM": 2048,
}


def test_foreign_pretraining__names_its_keys(tmp_path):
    made = trained(tmp_path / "made", PIRL, changes=FOREIGN_PRETRAININGS)
    run = read_run(benchmark(tmp_path / "run", made))
    expected = {f"pre-training {key}" for key in FOREIGN_PRETRAININGS}
    assert expected <= run.differs.keys(), expected - run.differs.keys()
    assert paper_rows(lay_out([run])) == []
    assert run.label.startswith("run, not PIRL: pre-training ")
    phrases = run.label.partition(": ")[2].split("; ")
    assert len(phrases) == 4  # three keys, and the number of others
    assert all(len(phrase) <= 80 for phrase in phrases)


FOREIGN_BENCHMARKS = {  # key -> another value, and the column
    "OPTIMIZER.momentum": (0.0, "ImageNet"),
    "OPTIMIZER.nesterov": (False, "Places205"),
    "OPTIMIZER.regularize_bn": (True, "ImageNet"),
    "OPTIMIZER.weight_decay": (0.1, "iNaturalist-2018"),
    "DATA.TEST.RESIZE": (224, "ImageNet"),
    "DATA.MEAN": ([0.5, 0.5, 0.5], "ImageNet"),
    "DATA.TRAIN.CROP_SIZE": (96, "Places205"),
    "DATA.TRAIN.CROP_SCALE": ([0.5, 1.0], "ImageNet"),
    "DATA.TRAIN.BATCHSIZE_PER_REPLICA": (4, "ImageNet"),  # of 8 GPUs
    "MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN": (False, "ImageNet"),
    "MODEL.AMP_PARAMS.USE_AMP": (True, "ImageNet"),
    "MODEL.FEATURE_EVAL_SETTINGS.FREEZE_TRUNK_ONLY": (False, "ImageNet"),
    "MODEL.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP": ([["res5", ["Identity", []]]],
                                                                 "Places205"),
    "SVM.costs.costs_list": ([1.0], "VOC07"),
    "SVM.normalize": (False, "VOC07"),
    "SVM.cross_val_folds": (5, "VOC07"),
    "DATA.TRAIN.RESIZE": ([256, 256], "VOC07"),
    "DATA.STD": ([1.0, 1.0, 1.0], "VOC07"),
    "OPTIMIZER.param_schedulers.lr.values": ([0.1, 0.01], "1 %"),
    "DATA.TRAIN.DROP_LAST": (False, "10 %"),
}  # fmt: skip


def test_foreign_benchmark__names_its_keys(tmp_path, subtests):
    made = trained(tmp_path / "made", PIRL)
    for column in ("ImageNet", "Places205", "iNaturalist-2018", "VOC07", "1 %", "10 %"):
        with subtests.test(column=column):
            changes = {
                key: value for key, (value, of) in FOREIGN_BENCHMARKS.items() if of == column
            }
            run = read_run(benchmark(tmp_path / column, made, column, changes))
            for key in changes:
                named = "global batch" if "BATCHSIZE" in key else key
                assert any(each.startswith(named) for each in run.differs), (key, run.differs)
            assert paper_rows(lay_out([run])) == []


def test_foreign__epochs_and_images_of_every_kind_of_run(tmp_path):
    """From the record, whatever a file is called: a link to epoch 10, 100 images of YFCC."""
    early = trained(tmp_path / "early", PIRL, epochs=10, name="model_phase9.torch")
    link = early.with_name("checkpoint.torch")
    link.symlink_to(early.name)
    renamed = trained(tmp_path / "renamed", PIRL, epochs=10, name="weights.torch")
    for number, file in enumerate((early, link, renamed)):
        run = read_run(measured(tmp_path / f"epochs{number}", file))
        assert run.differs == {"pre-training epochs done": (10, 800)}
    few = {
        "PIRL": trained(tmp_path / "few", PIRL, images=100),
        "Jigsaw": trained(tmp_path / "few_jigsaw", BASELINE, images=100),
        "PIRL (YFCC-1M)": trained(tmp_path / "y", PIRL, "+config/pirl/datasets=yfcc1m", images=100),
    }
    for number, (row, file) in enumerate(few.items()):
        run = read_run(measured(tmp_path / f"few{number}", file))
        assert run.row == row
        assert list(run.differs) == ["pre-training DATA.TRAIN.DATA_PATHS"]
        assert "DATA.TRAIN.DATA_PATHS 100 images (1," in run.label


def test_foreign__weights_that_are_no_pretraining_of_the_paper(tmp_path):
    better = tmp_path / "resnet50-11ad3fa6.pth"  # torchvision's second ResNet-50
    named = tmp_path / "resnet50-19c8e357.pth"  # as torchvision's first, with other content
    beside = trained(tmp_path / "made", PIRL).with_name("other.pth")  # beside train_config.yaml
    for file in (better, named, beside):
        torch.save({}, file)
        assert paper_rows(lay_out([read_run(measured(tmp_path / file.stem, file))])) == []


@pytest.mark.parametrize("kind", ["linear", "svm", "detection"])
def test_foreign__checkpoint_that_moved_on_after_it_was_measured(kind, tmp_path):
    made = trained(tmp_path / "made", PIRL, epochs=400)
    if kind == "detection":
        folder = detected(tmp_path / "run", weights=made, images=DETECTION_IMAGES)
    else:
        folder = measured(tmp_path / "run", made, column="VOC07" if kind == "svm" else "ImageNet")
        if kind == "linear":
            finish(folder, IMAGES["imagenet1k"])
        else:
            write_weights(hash_weights(read_config(folder / "train_config.yaml")), folder)
    assert list(read_run(folder).differs) == ["pre-training epochs done"]
    trained(tmp_path / "made", PIRL, name=made.name)
    run = read_run(folder)
    assert run.differs == {"weights": ("another file now", "the measured file")}
    assert paper_rows(lay_out([run])) == []


FOREIGN_DETECTIONS = {
    "an option": {"options": ["SOLVER.BASE_LR", "0.02"]},
    "a test set": {"options": ["DATASETS.TEST", "('voc_2007_val',)"]},
    "another schedule": {"config": "voc0712_supervised_jigsaw"},
    "a part of the images": {"images": {**DETECTION_IMAGES, "voc_2007_test": 100}},
    "another data set": {"images": {"mine": 5011}},
}


def test_foreign_detection__fills_no_row(tmp_path, subtests):
    weights = trained(tmp_path / "made", PIRL)
    for name, settings in FOREIGN_DETECTIONS.items():
        with subtests.test(name=name):
            run = read_run(detected(tmp_path / name, weights=weights, **settings))
            assert run.differs
            assert paper_rows(lay_out([run])) == []


def test_detection__fills_its_row_on_any_number_of_gpus(tmp_path):
    rows = {
        "PIRL": ("voc0712_pirl", PIRL),
        "NPID++": ("voc0712_pirl", "config=pretrain/pirl/npidpp_8node"),
        "Jigsaw": ("voc0712_supervised_jigsaw", BASELINE),
        "Rotation": ("voc0712_supervised_jigsaw", "config=pretrain/pirl/rotation_baseline_8node"),
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
    assert (run.tables, run.unknown) == ((6,), ["its numbers of images", "the AP of 2 of 5 trials"])
    norm = read_run(detected(tmp_path / "norm", "voc0712_moco24k", weights, num_gpus=1))
    assert norm.differs == {"num_gpus": (1, 8)}  # BatchNorm is trained


def test_views__are_named_by_the_key_that_a_user_sets(tmp_path):
    made = pretrained(tmp_path / "made", "config.DATA.TRAIN.VIEWS.patch_size=48")
    run = read_run(measured(tmp_path / "run", made))
    assert run.label == "run, not PIRL: pre-training DATA.TRAIN.VIEWS.patch_size 48 (64)"
