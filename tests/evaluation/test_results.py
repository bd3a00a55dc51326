"""Finished runs in the form of the paper's tables."""

import json
import zipfile

import numpy as np
import pytest
import yaml

from pirl_plugin.cli import run
from pirl_plugin.evaluation.finished_runs import read_run
from pirl_plugin.evaluation.results import lay_out, markdown

LAYERS = ["conv1", "res2", "res3", "res4", "res5"]


def write_config(folder, dataset="imagenet1k_folder", checkpoint="", **changes):
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "EVAL_MODE_ON": True,
        "EXTRACT_TRUNK_FEATURES_ONLY": False,
        "LINEAR_EVAL_FEAT_POOL_OPS_MAP": [[layer, ["Identity", []]] for layer in LAYERS],
    }
    settings |= changes.pop("settings", {})
    config = {
        "DATA": {"TRAIN": {"DATASET_NAMES": [dataset], "TRANSFORMS": [{"name": "ToTensor"}]}},
        "MODEL": {
            "TRUNK": {"NAME": "resnet", "RESNETS": {"DEPTH": 50, "WIDTH_MULTIPLIER": 1}},
            "WEIGHTS_INIT": {"PARAMS_FILE": str(checkpoint)},
            "FEATURE_EVAL_SETTINGS": settings,
        },
        "LOSS": {"name": "cross_entropy"},
    }
    for key, value in changes.items():
        config[key] = value
    (folder / "train_config.yaml").write_text(yaml.safe_dump(config))
    return folder


def pretraining(folder, transform="PIRLJigsaw", dataset="imagenet1k_folder", width=1, **more):
    loss_name, depth = more.pop("loss_name", "pirl_loss"), more.pop("depth", 50)
    permutations = more.pop("num_permutations", None)
    loss = {"lambda_invariance": 0.5, "num_negatives": 32000} | more
    write_config(folder, dataset, LOSS={"name": loss_name, "pirl_loss": loss})
    config = yaml.safe_load((folder / "train_config.yaml").read_text())
    config["DATA"]["TRAIN"]["TRANSFORMS"] = [{"name": transform, "num_permutations": permutations}]
    config["MODEL"]["TRUNK"]["RESNETS"] = {"DEPTH": depth, "WIDTH_MULTIPLIER": width}
    (folder / "train_config.yaml").write_text(yaml.safe_dump(config))
    return folder / "model.torch"


def linear(folder, checkpoint="", dataset="imagenet1k_folder", top1=(10, 20, 30, 40, 35), **more):
    write_config(folder, dataset, checkpoint, **more)
    layers = dict(zip(LAYERS, top1, strict=False)) if len(top1) == 5 else {"0": top1[0]}
    meter = {"top_1": layers, "top_5": {layer: value + 5 for layer, value in layers.items()}}
    early = {"top_1": {"conv1": 99.0}, "top_5": {}}
    lines = [
        {"test_accuracy_list_meter": early, "train_phase_idx": 1},
        {"train_accuracy_list_meter": {}, "train_phase_idx": 2},
        {"test_accuracy_list_meter": meter, "train_phase_idx": 2},
    ]
    (folder / "metrics.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with zipfile.ZipFile(folder / "model_final_checkpoint_phase2.torch", "w") as file:
        file.writestr("data.pkl", "weights")
    return folder


def row(tables, number, method):
    (table,) = [table for table in tables if table["number"] == number]
    (found,) = [row for row in table["rows"] if row["method"] == method]
    return dict(
        zip(table["columns"], zip(found["published"], found["measured"], strict=True), strict=True)
    )


def test_results__a_linear_run_fills_its_best_layer_and_all_layers(tmp_path):
    made = pretraining(tmp_path / "pretrain")
    tables = lay_out([read_run(linear(tmp_path / "linear", made))])
    assert [table["number"] for table in tables] == [1, 2, 3, 4, 5, 6, 7]
    assert row(tables, 2, "PIRL")["ImageNet"] == (63.6, 40.0)  # res4, of the last epoch
    layers = row(tables, 7, "PIRL")
    assert [layers[f"ImageNet {layer}"][1] for layer in LAYERS] == [10, 20, 30, 40, 35]
    assert layers["Places205 res5"] == (49.8, None)
    measured = [v for t in tables for r in t["rows"] for v in r["measured"] if v is not None]
    assert len(measured) == 6
    text = markdown(tables)
    assert "| PIRL | 63.6 | 40.0 res4 | 81.1 |  | 49.8 |  | 34.1 |  |" in text
    assert text.count("### Table") == 7


@pytest.mark.parametrize(
    ("made", "table", "method"),
    [
        ({}, 2, "PIRL"),
        ({"lambda_invariance": 0}, 2, "NPID++"),
        ({"lambda_invariance": 0, "num_negatives": 4096}, 2, "NPID"),
        ({"width": 2}, 2, "PIRL-c2x"),
        ({"dataset": "pirl_yfcc1m"}, 4, "PIRL (YFCC-1M)"),
        ({"num_negatives": 4096}, 5, "PIRL (Jigsaw)"),
        ({"transform": "PIRLRotation", "num_negatives": 4096}, 5, "PIRL (Rotation)"),
        ({"transform": "PIRLRotationJigsaw"}, 5, "PIRL (Rotation + Jigsaw)"),
        ({"transform": "PredictJigsaw", "loss_name": "cross_entropy"}, 7, "Jigsaw"),
        ({"transform": "PredictRotation", "loss_name": "cross_entropy"}, 2, "Rotation"),
        ({"transform": "PredictRotation", "loss_name": "cross_entropy"}, 5, "Rotation"),
        (
            {"transform": "PredictJigsaw", "loss_name": "cross_entropy", "dataset": "yfcc1m_x"},
            4,
            "Jigsaw (YFCC-1M)",
        ),
    ],
)
def test_results__the_row_is_told_by_the_pre_training(made, table, method, tmp_path):
    checkpoint = pretraining(tmp_path / "pretrain", **made)
    tables = lay_out([read_run(linear(tmp_path / "run", checkpoint, "places205_folder"))])
    column = "Places205 res4" if table == 7 else "Places205"
    assert row(tables, table, method)[column][1] == 40.0


@pytest.mark.parametrize(
    "made",
    [
        {"lambda_invariance": 0.25},
        {"num_negatives": 1024},
        {"num_permutations": 2000},
        {"transform": "PIRLRotationJigsaw", "num_permutations": 100},
        {"depth": 18},
        {"width": 0.5},
        {"width": 2, "transform": "PIRLRotation"},
        {"width": 2, "lambda_invariance": 0},
        {"dataset": "yfcc1m_x", "lambda_invariance": 0},
        {"dataset": "yfcc1m_x", "transform": "PIRLRotation"},
        {"dataset": "yfcc1m_x", "transform": "PredictRotation", "loss_name": "cross_entropy"},
        {"transform": "PredictJigsaw", "loss_name": "cross_entropy", "depth": 18},
    ],
)
def test_results__settings_of_no_row_go_by_the_folder(made, tmp_path):
    checkpoint = pretraining(tmp_path / "pretrain", **made)
    assert read_run(linear(tmp_path / "mine", checkpoint)).method == "mine"


def detection(folder, config, weights="model.pkl", mean=True):
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"AP": 50.0, "AP50": 70.0, "AP75": 60.0} if mean else None
    content = {"config": config, "weights": str(weights), "mean": figures}
    (folder / "results.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("config", "made", "table", "method"),
    [
        ("voc0712_pirl", None, 1, "PIRL"),
        ("somewhere/0712_jigsaw/voc07_pirl.yaml", None, 6, "PIRL"),
        ("voc0712_moco24k", None, 1, "MoCo (BatchNorm fine-tuned)"),
        ("voc0712_moco24k", {}, 1, "PIRL (BatchNorm fine-tuned)"),
        ("voc0712_pirl", {"lambda_invariance": 0}, 1, "NPID++"),
        (
            "voc07_supervised_jigsaw",
            {"transform": "PredictJigsaw", "loss_name": "cross_entropy"},
            6,
            "Jigsaw",
        ),
        ("voc07_pirl", {"depth": 18}, 6, "run"),
    ],
)
def test_results__a_detection_run_has_its_configs_table(config, made, table, method, tmp_path):
    weights = tmp_path / "model.pkl" if made is None else pretraining(tmp_path / "made", **made)
    found = read_run(detection(tmp_path / "run", config, weights))
    assert (found.tables, found.method) == ((table,), method)
    assert read_run(found.path, "Supervised").method == "Supervised"


def test_results__refuses_a_detection_run_of_no_row(tmp_path):
    for config in ("coco_c4_1x", "smoke_cpu"):
        with pytest.raises(ValueError, match=f"run of {config}, which is in no table"):
            read_run(detection(tmp_path / "voc07_pirl", config))
    with pytest.raises(ValueError, match="give ROW=RUN"):
        read_run(detection(tmp_path / "run", "voc07_supervised_jigsaw", tmp_path / "model.pkl"))
    with pytest.raises(ValueError, match="no trial finished: run the same command again"):
        read_run(detection(tmp_path / "run", "voc07_pirl", mean=False))


def test_results__svm_semi_supervised_detection_and_knn(tmp_path):
    made = pretraining(tmp_path / "pretrain")
    svm = write_config(
        tmp_path / "svm", "pirl_voc07", made, settings={"EXTRACT_TRUNK_FEATURES_ONLY": True}
    )
    for i, layer in enumerate(LAYERS):
        (svm / layer).mkdir()
        np.save(svm / layer / "test_ap.npy", np.array([[0.1 * i], [0.3]]))
    semi = linear(
        tmp_path / "semi",
        made,
        "pirl_imagenet1k_10percent",
        (30,),
        settings={"EVAL_MODE_ON": False},
    )
    detected = detection(tmp_path / "detection", "voc0712_pirl", made)
    knn = tmp_path / "knn"
    knn.mkdir()
    (knn / "results.json").write_text(json.dumps({"knn_top1": 33.0, "checkpoint": str(made)}))
    tables = lay_out([read_run(path) for path in (svm, semi, detected, knn)])
    assert row(tables, 2, "PIRL")["VOC07"] == (81.1, pytest.approx(35.0))  # (0.4 + 0.3) / 2 of res5
    assert row(tables, 3, "PIRL")["10 %"] == (83.8, 35.0)  # top-5
    assert row(tables, 3, "PIRL")["1 %"] == (57.2, None)
    assert row(tables, 1, "PIRL")["AP75"] == (59.7, 60.0)
    assert row(tables, None, "pretrain")["kNN"] == (None, 33.0)


def test_results__several_runs_give_mean_and_spread(tmp_path):
    runs = [
        read_run(linear(tmp_path / str(i), top1=(0, 0, 0, 0, value)), "PIRL")
        for i, value in enumerate((60.0, 62.0))
    ]
    tables = lay_out(runs)
    assert row(tables, 2, "PIRL")["ImageNet"][1] == 61.0
    assert "61.0 res5 ± 1.4 (2 runs)" in markdown(tables)  # √2


def test_results__other_rows_are_added(tmp_path):
    tables = lay_out([read_run(linear(tmp_path / "mine"), "My method")])
    assert row(tables, 2, "My method")["ImageNet"] == (None, 40.0)


def test_results_command__prints_markdown_or_json_and_writes_both(tmp_path, capsys):
    folder = linear(tmp_path / "mine")
    assert run(["results", f"PIRL={folder}", "--out", str(tmp_path / "out")]) == 0
    assert "| PIRL | 63.6 | 40.0 res4 |" in capsys.readouterr().out
    assert run(["results", f"PIRL={folder}", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert row(tables, 2, "PIRL")["ImageNet"] == (63.6, 40.0)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["tables"] == tables
    assert "40.0" in (tmp_path / "out" / "results.md").read_text()


def test_results__refuses(tmp_path):
    with pytest.raises(SystemExit, match="is no folder of a run: it has neither results"):
        run(["results", str(tmp_path)])
    unfinished = linear(tmp_path / "run")
    (unfinished / "model_final_checkpoint_phase2.torch").unlink()
    with pytest.raises(SystemExit, match="no test accuracy of the last epoch"):
        run(["results", str(unfinished)])
    with pytest.raises(SystemExit, match="a run on 'cifar', which is in no table"):
        run(["results", str(linear(tmp_path / "other", dataset="cifar"))])
    untested = linear(tmp_path / "untested")
    metrics = untested / "metrics.json"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(SystemExit, match="no test accuracy of the last epoch"):
        run(["results", str(untested)])
