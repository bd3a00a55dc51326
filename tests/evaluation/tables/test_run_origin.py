"""Which row a run's pre-training is of, and in what it differs."""

import json

import numpy as np
import pytest
import yaml

from pirl_plugin.evaluation.tables.finished_runs import read_run
from pirl_plugin.evaluation.tables.layout import lay_out
from pirl_plugin.evaluation.tables.markdown import markdown
from pirl_plugin.evaluation.tables.run_origin import UNKNOWN, origin_of
from tests.helpers.finished_runs import composed, measured, pretrained, write_metrics, write_run
from tests.helpers.results_rows import paper_rows, row

LOSS = "LOSS.pirl_loss."


FOREIGN_PRETRAININGS = {  # name → overrides, and the key that differs
    "200 epochs": (["+config/pirl/epochs=epochs_200"], "OPTIMIZER.num_epochs"),
    "MLP head": (["+config/pirl/models=resnet50_mlp"], "MODEL.HEAD.PARAMS.0.1.hidden_dim"),
    "blur": (["+config/pirl/transforms=gaussian_blur"], "DATA.TRAIN.TRANSFORMS.0.photometric"),
    "info_nce at 0.5": (
        ["config.LOSS.pirl_loss.estimator=info_nce", "config.LOSS.pirl_loss.temperature=0.5"],
        "LOSS.pirl_loss.temperature",
    ),
    "bank init": (["config.LOSS.pirl_loss.bank.init=embeddings"], "LOSS.pirl_loss.bank.init"),
    "bank momentum": (["config.LOSS.pirl_loss.bank.momentum=0.99"], "LOSS.pirl_loss.bank.momentum"),
    "weight decay": (["config.OPTIMIZER.weight_decay=0"], "OPTIMIZER.weight_decay"),
    "own images": (["+config/pirl/datasets=folder"], "data set"),
    "lambda": ([f"config.{LOSS}lambda_invariance=0.25"], f"{LOSS}lambda_invariance"),
    "negatives": (["config.LOSS.pirl_loss.num_negatives=1024"], "LOSS.pirl_loss.num_negatives"),
    "ResNet-18": (["+config/pirl/models=resnet18"], "MODEL.TRUNK.NAME"),
    "limited": (["config.DATA.TRAIN.DATA_LIMIT=1000"], "DATA.TRAIN.DATA_LIMIT"),
    "autocast": (["config.HOOKS.PIRL_INPUT.autocast=bfloat16"], "HOOKS.PIRL_INPUT.autocast"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN_PRETRAININGS)
def test_origin__another_pre_training_has_a_row_of_its_own(name, tmp_path):
    overrides, key = FOREIGN_PRETRAININGS[name]
    made = pretrained(tmp_path / "made", *overrides)
    runs = [
        read_run(measured(tmp_path / "ours", pretrained(tmp_path / "paper"), best=60)),
        read_run(measured(tmp_path / "foreign", made, best=40)),
    ]
    tables = lay_out(runs)
    assert row(tables, 2, "PIRL")["ImageNet"] == (63.6, 60.0)  # and not a mean of 60 and 40
    assert "runs)" not in markdown(tables)
    (own,) = [r for r in tables[1]["rows"] if r["differs"]]
    assert own["measured"][0] == 40.0
    assert own["method"].startswith("foreign, not ")
    assert any(k.startswith(f"pre-training {key}") for k in own["differs"])


def test_origin__few_permutations_for_two_epochs_are_not_the_jigsaw_row(tmp_path):
    made = pretrained(
        tmp_path / "made",
        "config.DATA.TRAIN.TRANSFORMS.0.num_permutations=10",
        "config.OPTIMIZER.num_epochs=2",
        row="Jigsaw",
    )
    found = read_run(measured(tmp_path / "run", made))
    assert found.differs["pre-training OPTIMIZER.num_epochs"] == (2, 400)
    assert found.differs["pre-training DATA.TRAIN.TRANSFORMS.0.num_permutations"] == (10, 2000)
    assert paper_rows(lay_out([found])) == []


def test_origin__a_pre_training_that_began_with_other_settings_is_not_the_row(tmp_path):
    made = pretrained(tmp_path / "pretrain")
    earlier = pretrained(tmp_path / "earlier", "config.LOSS.pirl_loss.temperature=0.5").parent
    (earlier / "train_config.yaml").rename(made.parent / "train_config_1.yaml")
    run = read_run(measured(tmp_path / "linear", made))
    key = "pre-training LOSS.pirl_loss.temperature at first"
    assert run.differs == {key: (0.5, 0.07)}
    same = read_run(measured(tmp_path / "other", pretrained(tmp_path / "pretrain2")))
    assert run.identity != same.identity


def test_origin__five_classes_are_not_imagenet(tmp_path):
    made = pretrained(tmp_path / "made")
    for split in ("train", "val"):
        for name in ("coat", "hat", "shirt", "shoe", "sock"):
            (tmp_path / "clothes" / split / name).mkdir(parents=True)
    folder = measured(tmp_path / "run", made)
    config = yaml.safe_load((folder / "train_config.yaml").read_text())
    config["DATA"]["TRAIN"]["DATA_PATHS"] = [str(tmp_path / "clothes" / "train")]
    write_run(folder, config)
    assert read_run(folder).differs == {"classes in DATA.TRAIN.DATA_PATHS": (5, 1000)}
    (folder / "log.txt").write_text("INFO: Total 155 samples in one epoch\n")
    assert read_run(folder).differs["training images"] == (155, 1_281_167)
    (folder / "log.txt").write_text("INFO: Total 1281167 samples in one epoch\n")
    config["DATA"]["TRAIN"]["DATA_PATHS"] = ["elsewhere"]
    write_run(folder, config)
    assert read_run(folder).differs == {}


def test_origin__pre_training_on_other_images_than_it_says(tmp_path):
    made = pretrained(tmp_path / "made", row="PIRL (YFCC-1M)")
    np.save(tmp_path / "train.npy", np.array(["a.jpg", "b.jpg"]))
    config = yaml.safe_load((tmp_path / "made" / "train_config.yaml").read_text())
    config["DATA"]["TRAIN"]["DATA_PATHS"] = [str(tmp_path / "train.npy")]
    write_run(tmp_path / "made", config)
    found = read_run(measured(tmp_path / "run", made))
    assert found.differs == {"pre-training training images": (2, 1_000_000)}


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([13_000, "Resume from file: a", 1_281_167], 13_000),
        ([1_281_167, "Resume from file: a", 13_000, "Resume from file: b", 1_281_167], 13_000),
        ([13_000, "Resume from file: a", 13_000, 1_281_167], None),  # the last started over
    ],
)
def test_origin__a_run_that_went_on_with_other_images_is_not_the_row(log, expected, tmp_path):
    made = pretrained(tmp_path / "made")
    lines = [f"Total {n} samples in one epoch" if isinstance(n, int) else n for n in log]
    made.with_name("log.txt").write_text("\n".join(lines))
    expected = {"pre-training training images": (expected, 1_281_167)} if expected else {}
    assert read_run(measured(tmp_path / "run", made)).differs == expected


def test_origin__a_benchmark_that_names_its_own_folder_is_of_unknown_weights(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    measured(folder, folder / "checkpoint.torch")
    unknown = {"pre-training": ("unknown", None)}
    assert origin_of(str(folder / "checkpoint.torch")).differs == unknown
    pretrained(tmp_path)  # the folder that one happens to be in says nothing about them
    monkeypatch.chdir(tmp_path)
    assert origin_of(UNKNOWN).differs == unknown


@pytest.mark.parametrize(
    "name", ["checkpoint.torch", "model_phase99.torch", "model_iteration510.torch"]
)
def test_origin__a_checkpoint_of_an_earlier_epoch_is_not_the_row(name, tmp_path):
    made = pretrained(tmp_path / "made").with_name(name)
    lines = [{"ep": 99, "iter": 500}]
    if name.startswith("model"):  # the pre-training went on
        lines += [{"ep": 100, "iter": 505}, {"ep": 799, "iter": 4000}]
    made.with_name("stdout.json").write_text("\n".join(map(json.dumps, lines)))
    found = read_run(measured(tmp_path / "run", made))
    assert found.differs == {"pre-training epochs done": (100, 800)}
    final = made.with_name("model_final_checkpoint_phase799.torch")
    assert read_run(measured(tmp_path / "run", final)).differs == {}


def ensemble(folder, files):
    config = composed("config=benchmark/pirl/ensemble_imagenet1k")
    config["MODEL"]["TRUNK"]["PIRL_ENSEMBLE"]["PARAMS_FILES"] = [str(file) for file in files]
    write_run(folder, config)
    write_metrics(folder, {"res4": 10.0, "res5": 66.0}, config["OPTIMIZER"]["num_epochs"])
    return folder


def test_origin__each_member_of_an_ensemble_is_pirl(tmp_path):
    one, two = (pretrained(tmp_path / name) for name in ("one", "two"))
    tables = lay_out([read_run(ensemble(tmp_path / "run", [one, two]))])
    assert paper_rows(tables) == [(2, "PIRL-ens")]
    small = pretrained(tmp_path / "small", "+config/pirl/models=resnet18")
    found = read_run(ensemble(tmp_path / "run", [one, small]))
    assert "member 2 pre-training MODEL.TRUNK.NAME" in found.differs
    jigsaw = pretrained(tmp_path / "jigsaw", row="PIRL (Jigsaw)")
    found = read_run(ensemble(tmp_path / "run", [one, jigsaw]))
    assert found.differs == {"member 2": ("PIRL (Jigsaw)", "PIRL")}
    assert "members" in read_run(ensemble(tmp_path / "run", [one, one])).differs


def test_origin__own_images_are_nearest_to_the_row_of_the_same_settings(tmp_path):
    overrides = ["+config/pirl/datasets=folder", "config.OPTIMIZER.num_epochs=9"]
    made = pretrained(tmp_path / "made", *overrides)
    for i in range(3):
        (tmp_path / "shells" / str(i)).mkdir(parents=True)
    config = yaml.safe_load((tmp_path / "made" / "train_config.yaml").read_text())
    config["DATA"]["TRAIN"]["DATA_PATHS"] = [str(tmp_path / "shells")]
    write_run(tmp_path / "made", config)
    own = "config.DATA.TRAIN.DATASET_NAMES=[pirl_folder]"
    assert read_run(measured(tmp_path / "run", made, own)).method == (
        "run (pre-training nearest to PIRL)"
    )
