"""Finished runs arranged as in the paper's tables."""

import json

import pytest
import results
import yaml
from paper_rows import PRETRAININGS
from paper_runs import read_run
from paper_tables import lay_out, markdown
from published import LAYERS, published_tables

from tests.helpers.finished_runs import measured, pretrained, write_run
from tests.helpers.results_rows import detected, paper_rows, row


def test_linear_run__fills_best_layer_and_all_layers(tmp_path):
    made = pretrained(tmp_path / "pretrain", "config.SEED_VALUE=3", "config.LOG_FREQUENCY=7")
    tables = lay_out([read_run(measured(tmp_path / "linear", made))])
    assert [table["number"] for table in tables] == [1, 2, 3, 4, 5, 6, 7]
    assert row(tables, 2, "PIRL")["ImageNet"] == (63.6, 40.0)  # res4, from the last epoch
    layers = row(tables, 7, "PIRL")
    assert [layers[f"ImageNet {layer}"][1] for layer in LAYERS] == [10, 20, 30, 40, 35]
    values = [v for t in tables for r in t["rows"] for v in r["measured"] if v is not None]
    assert len(values) == 6
    assert "| PIRL | 63.6 | 40.0 | 81.1 |  | 49.8 |  | 34.1 |  |" in markdown(tables)


def test_rows__match_the_paper():
    assert set(PRETRAININGS) <= {name for table in published_tables() for name in table["rows"]}


COLUMNS = {  # column -> tables, and measured value: best top-1, mAP or top-5
    "Places205": ([2, 7], 40.0),
    "iNaturalist-2018": ([2], 40.0),
    "VOC07": ([2], 40.0),
    "1 %": ([3], 45.0),
    "10 %": ([3], 45.0),
}


def test_column__is_filled_by_matching_benchmark(tmp_path, subtests):
    made = pretrained(tmp_path / "made")
    for column, (numbers, figure) in COLUMNS.items():
        with subtests.test(column=column):
            tables = lay_out([read_run(measured(tmp_path / column, made, column=column))])
            assert row(tables, numbers[0], "PIRL")[column][1] == pytest.approx(figure)
            assert paper_rows(tables) == [(number, "PIRL") for number in numbers]


def test_results__average_only_equal_runs(tmp_path):
    seeds = [pretrained(tmp_path / f"seed{i}", f"config.SEED_VALUE={i}") for i in range(2)]
    few = pretrained(tmp_path / "few", "config.LOSS.pirl_loss.num_negatives=64")
    runs = [
        read_run(measured(tmp_path / f"run{i}", made, best=value))
        for i, (made, value) in enumerate(zip([*seeds, few], (60, 62, 40), strict=True))
    ]
    tables = lay_out(runs)
    assert "| PIRL | 63.6 | 61.0 ± 1.4 (2 runs) |" in markdown(tables)  # √2
    (own,) = [r for r in tables[1]["rows"] if r["differs"]]
    assert own["measured"][0] == 40.0
    assert own["differs"] == {"pre-training LOSS.pirl_loss.num_negatives": ["64", "32000"]}


def test_results__include_supervised_own_data_and_detection(tmp_path):
    supervised = read_run(measured(tmp_path / "a", tmp_path / "resnet50-0676ba61.pth"))
    assert (supervised.row, supervised.differs) == ("Supervised", {})
    gone = "whether resnet50-0676ba61.pth is torchvision's file"
    assert supervised.unknown[0] == gone
    unknown = read_run(measured(tmp_path / "b", tmp_path / "other" / "x.pth"))
    assert unknown.label == "b: weights other/x.pth (unknown pre-training)"
    own = "config.DATA.TRAIN.DATASET_NAMES=[pirl_folder]"
    with pytest.raises(ValueError, match="not a benchmark on one of imagenet1k, places205"):
        read_run(measured(tmp_path / "own", pretrained(tmp_path / "made"), own))
    weights = tmp_path / "made" / "checkpoint.torch"
    found = read_run(detected(tmp_path / "detection", weights=weights))
    assert row(lay_out([found]), 1, "PIRL")["AP"] == (54.0, 50.0)
    other = read_run(detected(tmp_path / "o", weights=weights, options=["SOLVER.MAX_ITER", "9"]))
    assert other.differs == {"SOLVER.MAX_ITER": ("9", "as in the config")}


def test_command__writes_tables_and_names_bad_runs(tmp_path, capsys):
    good = measured(tmp_path / "good", pretrained(tmp_path / "made"))
    unfinished = measured(tmp_path / "unfinished", tmp_path / "made" / "checkpoint.torch")
    (unfinished / "model_final_checkpoint_phase27.torch").unlink()
    broken = write_run(tmp_path / "broken", {"DATA": {}})
    empty = tmp_path / "empty"
    folders = [str(folder) for folder in (empty, good, unfinished, broken, tmp_path / "made")]
    assert results.main([*folders, "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("### Table 2.")
    named = ("empty", "unfinished", "broken", "made")
    for sentence, name in zip(captured.err.splitlines(), named, strict=True):
        assert name in sentence
    tables = json.loads((tmp_path / "out" / "results.json").read_text())["tables"]
    assert row(tables, 2, "PIRL")["ImageNet"] == (63.6, 40.0)
    assert "### Table 1." in (tmp_path / "out" / "results.md").read_text()
    assert results.main([str(good), str(good), "--json"]) == 0  # counted once
    assert json.loads(capsys.readouterr().out)["tables"] == tables
    assert yaml.safe_load((good / "train_config.yaml").read_text())["SEED_VALUE"] == 0
