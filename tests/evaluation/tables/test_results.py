"""Finished runs in the form of the paper's tables."""

import json

import pytest
import yaml

from pirl_plugin.cli import run
from pirl_plugin.evaluation.tables.finished_runs import read_run
from pirl_plugin.evaluation.tables.layout import lay_out
from pirl_plugin.evaluation.tables.markdown import markdown
from tests.helpers.finished_runs import (
    LAYERS,
    PRETRAININGS,
    WIDE,
    composed,
    measured,
    pretrained,
    write_run,
)
from tests.helpers.results_rows import detected, paper_rows, row


def test_results__a_linear_run_fills_its_best_layer_and_all_layers(tmp_path):
    made = pretrained(tmp_path / "pretrain")
    tables = lay_out([read_run(measured(tmp_path / "linear", made))])
    assert [table["number"] for table in tables] == [1, 2, 3, 4, 5, 6, 7]
    assert row(tables, 2, "PIRL")["ImageNet"] == (63.6, 40.0)  # res4, of the last epoch
    layers = row(tables, 7, "PIRL")
    assert [layers[f"ImageNet {layer}"][1] for layer in LAYERS] == [10, 20, 30, 40, 35]
    assert layers["Places205 res5"] == (49.8, None)
    values = [v for t in tables for r in t["rows"] for v in r["measured"] if v is not None]
    assert len(values) == 6
    text = markdown(tables)
    assert "| PIRL | 63.6 | 40.0 res4 | 81.1 |  | 49.8 |  | 34.1 |  |" in text
    assert text.count("### Table") == 7


@pytest.mark.parametrize(
    ("method", "table"),
    [
        ("PIRL", 2),
        ("NPID++", 2),
        ("NPID", 2),
        ("PIRL (YFCC-1M)", 4),
        ("Jigsaw (YFCC-1M)", 4),
        ("PIRL (Jigsaw)", 5),
        ("PIRL (Rotation)", 5),
        ("PIRL (Rotation + Jigsaw)", 5),
        ("Jigsaw", 7),
        ("Rotation", 5),
        ("PIRL-c2x", 2),
    ],
)
def test_results__the_row_is_that_of_the_pre_training(method, table, tmp_path):
    made = pretrained(tmp_path / "pretrain", row=method)
    wide = [WIDE] if method == "PIRL-c2x" else []
    tables = lay_out([read_run(measured(tmp_path / "run", made, *wide, column="Places205"))])
    column = "Places205 res4" if table == 7 else "Places205"
    assert row(tables, table, method)[column][1] == 40.0


@pytest.mark.parametrize("column", ["VOC07", "1 %", "10 %"])
def test_results__svm_and_semi_supervised(column, tmp_path):
    folder = measured(tmp_path / "run", pretrained(tmp_path / "made"), column=column)
    tables = lay_out([read_run(folder)])
    number = 2 if column == "VOC07" else 3
    expected = 40.0 if column == "VOC07" else 45.0  # top-5
    assert row(tables, number, "PIRL")[column][1] == pytest.approx(expected)
    assert paper_rows(tables) == [(number, "PIRL")]


def test_results__a_three_epoch_linear_run_is_not_the_papers(tmp_path):
    made = pretrained(tmp_path / "made")
    found = read_run(measured(tmp_path / "run", made, "config.OPTIMIZER.num_epochs=3"))
    assert found.differs == {"OPTIMIZER.num_epochs": (3, 28)}
    assert paper_rows(lay_out([found])) == []
    assert "| run, not PIRL: OPTIMIZER.num_epochs 3 (28) |" in markdown(lay_out([found]))
    # The configuration says 28 epochs, and the last checkpoint is that of the third.
    folder = write_run(tmp_path / "run", composed("config=benchmark/pirl/linear_imagenet1k"))
    assert read_run(folder).differs["epochs done"] == (3, 28)


def test_results__only_equal_runs_are_averaged(tmp_path):
    seeds = [
        pretrained(tmp_path / f"seed{i}", f"config.SEED_VALUE={i}", "config.LOG_FREQUENCY=7")
        for i in range(2)
    ]
    other = ["config.LOSS.pirl_loss.num_negatives=64"]
    foreign = [pretrained(tmp_path / f"few{i}", *other, f"config.SEED_VALUE={i}") for i in range(2)]
    fewer = pretrained(tmp_path / "fewer", "config.LOSS.pirl_loss.num_negatives=32")
    runs = [
        read_run(measured(tmp_path / f"run{i}", made, best=value))
        for i, (made, value) in enumerate(
            zip([*seeds, *foreign, fewer], (60, 62, 40, 44, 30), strict=True)
        )
    ]
    tables = lay_out(runs)
    assert "| PIRL | 63.6 | 61.0 res4 ± 1.4 (2 runs) |" in markdown(tables)  # √2
    own = [r["measured"][0] for r in tables[1]["rows"] if r["differs"]]
    assert own == [42.0, 30.0]


@pytest.mark.parametrize("kind", ["linear", "own data", "kNN", "detection"])
def test_results__checkpoints_of_other_epochs_or_images_are_not_averaged(kind, tmp_path):
    own = "config.DATA.TRAIN.DATASET_NAMES=[pirl_folder]"

    def run_of(name, checkpoint, value):
        if kind == "kNN":
            return knn(tmp_path / name, value, checkpoint=str(checkpoint))
        if kind == "detection":
            mean = {"AP": value, "AP50": value, "AP75": value}
            return detected(tmp_path / name, weights=checkpoint, mean=mean)
        overrides = [own] if kind == "own data" else []
        return measured(tmp_path / name, checkpoint, *overrides, best=value)

    few = ["config.LOSS.pirl_loss.num_negatives=64", "config.LOSS.pirl_loss.temperature=0.5", own]
    made = pretrained(tmp_path / "made", *few)  # a row's name has the first three differences
    checkpoints = [
        *(made.with_name(f"model_phase{phase}.torch") for phase in (49, 99, 199)),
        pretrained(tmp_path / "fewer", *few).with_name("model_phase49.torch"),
        pretrained(tmp_path / "seed", *few, "config.SEED_VALUE=1").with_name("model_phase49.torch"),
    ]
    for checkpoint, images in zip(checkpoints, (200, 200, 200, 100, 200), strict=True):
        line = f"INFO: Total {images} samples in one epoch\n"
        checkpoint.with_name("log.txt").write_text(line)
    values = (40.0, 50.0, 60.0, 30.0, 42.0)
    pairs = enumerate(zip(checkpoints, values, strict=True))
    runs = [read_run(run_of(f"run{i}", *pair)) for i, pair in pairs]
    rows = [
        row["measured"][0]
        for table in lay_out(runs)
        for row in table["rows"]
        if row["measured"][0] is not None and table["number"] != 7
    ]
    seeds = [40.0, 50.0, 60.0, 30.0, 42.0] if kind == "kNN" else [41.0, 50.0, 60.0, 30.0]
    assert rows == seeds  # a row of kNN is called as the folder of the pre-training


def test_results__own_data_has_a_table_of_its_own(tmp_path):
    made = pretrained(tmp_path / "made")
    own = "config.DATA.TRAIN.DATASET_NAMES=[pirl_folder]"
    folders = [measured(tmp_path / name, made, own) for name in ("a", "b")]
    config = yaml.safe_load((folders[1] / "train_config.yaml").read_text())
    config["DATA"]["TRAIN"]["DATA_PATHS"] = ["shells"]
    write_run(folders[1], config)
    tables = lay_out([read_run(folder) for folder in folders])
    assert paper_rows(tables) == []
    first, second = tables[7:]
    assert first["title"] == "Linear models on pirl_folder in nowhere, percent; not in the paper"
    assert second["title"].startswith("Linear models on pirl_folder in shells")
    assert first["columns"] == ["top-1", *(f"top-1 {layer}" for layer in LAYERS)]
    assert [r["measured"] for r in first["rows"]] == [[40.0, 10, 20, 30, 40, 35]]
    assert "| PIRL | 40.0 res4 | 10.0 |" in markdown(tables)


def knn(folder, top1, **more):
    folder.mkdir()
    content = {"knn_top1": top1, "checkpoint": str(folder / "pretrain" / "x.torch"), "k": 20}
    (folder / "results.json").write_text(json.dumps(content | more))
    return folder


def test_results__knn_runs_of_equal_folder_names_are_not_averaged(tmp_path):
    runs = [read_run(knn(tmp_path / name, value)) for name, value in (("a", 30.0), ("b", 50.0))]
    rows = lay_out(runs)[-1]["rows"]
    assert [(r["method"], r["measured"]) for r in rows] == [
        ("pretrain (a)", [30.0]),
        ("pretrain (b)", [50.0]),
    ]


OWN = ("config.DATA.TRAIN.DATASET_NAMES=[pirl_folder]",)
CHECKPOINTS = {  # what differs → two checkpoints' overrides and names
    "images": ("config.DATA.TRAIN.DATA_PATHS=[other]", "checkpoint.torch", "checkpoint.torch"),
    "step": ("config.SEED_VALUE=1", "model_iteration1.torch", "model_iteration4.torch"),
}


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_results__models_of_other_images_or_steps_are_not_averaged(what, tmp_path):
    override, *names = CHECKPOINTS[what]
    runs = []
    for folder, overrides, name in zip("ab", [OWN, (*OWN, override)], names, strict=True):
        made = pretrained(tmp_path / folder / "pre", *overrides).with_name(name)
        runs.append(read_run(measured(tmp_path / f"linear_{folder}", made, *OWN)))
    rows = lay_out(runs)[-1]["rows"]
    assert [r["spread"][0] for r in rows] == [None, None]
    assert len({r["method"] for r in rows}) == 2


@pytest.mark.parametrize("what", ["test images", "settings at first", "nothing"])
def test_results__benchmarks_on_own_data_are_averaged_where_they_are_one(what, tmp_path):
    made = pretrained(tmp_path / "made")
    for name in "ab":
        measured(tmp_path / name, made, *OWN)
    config = yaml.safe_load((tmp_path / "b" / "train_config.yaml").read_text())
    if what == "test images":
        config["DATA"]["TEST"]["DATA_PATHS"] = ["shells"]
        write_run(tmp_path / "b", config)
    elif what == "settings at first":
        config["OPTIMIZER"]["weight_decay"] = 0.5
        (tmp_path / "b" / "train_config_1.yaml").write_text(yaml.safe_dump(config))
    rows = lay_out([read_run(tmp_path / name) for name in "ab"])[-1]["rows"]
    names = ["PIRL"] if what == "nothing" else ["PIRL (a)", "PIRL (b)"]
    assert [r["method"] for r in rows] == names


def test_results_command__prints_markdown_or_json_and_writes_both(tmp_path, capsys):
    folder = measured(tmp_path / "mine", pretrained(tmp_path / "made"))
    assert run(["results", str(folder), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "| PIRL | 63.6 | 40.0 res4 |" in printed
    assert printed.startswith("### Table 2.")
    assert "Nothing here is of the paper's tables 1, 3, 4, 5, 6; --out DIR writes" in printed
    assert run(["results", str(folder), "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert row(tables, 2, "PIRL")["ImageNet"] == (63.6, 40.0)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["tables"] == tables
    written = (tmp_path / "out" / "results.md").read_text()
    assert "40.0" in written
    assert "### Table 1." in written


def test_results_command__counts_a_run_once(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    measured(tmp_path / "one", pretrained(tmp_path / "made"))
    assert run(["results", "one", "./one/", str(tmp_path / "one")]) == 1
    found = capsys.readouterr()
    assert "±" not in found.out
    assert found.err.count("expected each run once") == 2


def test_results_command__names_bad_runs_and_shows_the_others(tmp_path, capsys):
    good = measured(tmp_path / "good", pretrained(tmp_path / "made"))
    unfinished = measured(tmp_path / "unfinished", pretrained(tmp_path / "made"))
    (unfinished / "model_final_checkpoint_phase27.torch").unlink()
    untested = measured(tmp_path / "untested", pretrained(tmp_path / "made"))
    lines = (untested / "metrics.json").read_text().splitlines(keepends=True)
    (untested / "metrics.json").write_text("".join(lines[:-1]))
    broken = write_run(tmp_path / "broken", {"DATA": {}})
    coco = detected(tmp_path / "coco", "coco_c4_1x")
    none = detected(tmp_path / "none", mean=None)
    empty = tmp_path / "empty"
    cut = write_run(tmp_path / "cut", {"DATA": {}})
    (cut / "train_config.yaml").write_text("DATA: {TRAIN: [")
    bad = [empty, unfinished, untested, broken, cut, coco, none]
    assert run(["results", *map(str, [bad[0], good, *bad[1:]])]) == 1
    captured = capsys.readouterr()
    assert "| PIRL | 63.6 | 40.0 res4 |" in captured.out
    sentences = captured.err.splitlines()
    assert len(sentences) == len(bad)
    for sentence, folder in zip(sentences, bad, strict=True):
        assert folder.name in sentence or "coco_c4_1x" in sentence
    with pytest.raises(SystemExit, match="no run can be shown"):
        run(["results", str(empty)])


@pytest.mark.parametrize("method", PRETRAININGS)
def test_published__labels_are_the_papers(method):
    from pirl_plugin.evaluation.tables.published import published_parameters, published_tables

    tables = {table["number"]: table["rows"] for table in published_tables()}
    assert any(method in rows for rows in tables.values())
    assert [name for name in tables[1] if "CPC" in name] == ["CPC-Big", "CPC-Huge"]
    assert [name for name in tables[2] if "CPC" in name] == ["CPC", "CPC-Huge"]
    assert [name for name in tables[3] if "CPC" in name] == ["CPC-Largest"]
    assert set(published_parameters()) == set(tables[2])


def test_results__of_a_pre_training_say_that_it_is_none_of_a_benchmark(tmp_path):
    folder = pretrained(tmp_path / "pretrain").parent
    with pytest.raises(ValueError, match=r"is a pre-training: expected the folder of a benchmark"):
        read_run(folder)
