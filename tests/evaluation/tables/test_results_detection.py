"""Finished detection runs in the form of the paper's tables."""

import pytest
import yaml

from pirl_plugin.evaluation.tables.finished_runs import read_run
from pirl_plugin.evaluation.tables.layout import lay_out
from tests.helpers.finished_runs import (
    measured,
    pretrained,
)
from tests.helpers.results_rows import detected, paper_rows


@pytest.mark.parametrize(
    ("config", "made", "table"),
    [
        ("voc0712_pirl", "PIRL", 1),
        ("voc0712_pirl", "NPID++", 1),
        ("voc07_pirl", "PIRL", 6),
        ("voc07_supervised_jigsaw", "Jigsaw", 6),
        ("voc0712_supervised_jigsaw", "Jigsaw", 1),
    ],
)
def test_results__a_detection_run_has_its_configs_table(config, made, table, tmp_path):
    weights = pretrained(tmp_path / "made", row=made)
    tables = lay_out([read_run(detected(tmp_path / "run", config, weights))])
    assert paper_rows(tables) == [(table, made)]


FOREIGN_DETECTIONS = {
    "three iterations": (
        {"options": ["SOLVER.MAX_ITER", "3", "SOLVER.BASE_LR", "1e-7"]},
        {"SOLVER.MAX_ITER": (3, 25000), "SOLVER.BASE_LR": (1e-7, 0.003)},
    ),
    "another option": ({"options": ["MODEL.RPN.NMS_THRESH", "0.5"]}, {"MODEL.RPN.NMS_THRESH"}),
    "fewer GPUs": (
        {"trials": [{"iterations": 200000, "base_lr": 0.000375, "images_per_step": 2}]},
        {"iterations": (200000, 25000), "base_lr": (0.000375, 0.003), "images_per_step": (2, 16)},
    ),
    "a file that is not here": ({"config": "mine/voc0712_pirl.yaml"}, {"config"}),
    "the baselines' schedule": ({"config": "voc0712_supervised_jigsaw"}, {"config"}),
}


@pytest.mark.parametrize("name", FOREIGN_DETECTIONS)
def test_results__another_detection_run_has_a_row_of_its_own(name, tmp_path):
    changes, expected = FOREIGN_DETECTIONS[name]
    changes = {"weights": pretrained(tmp_path / "made")} | changes
    found = read_run(detected(tmp_path / "run", **changes))
    assert (
        found.differs == expected if isinstance(expected, dict) else set(found.differs) == expected
    )
    assert paper_rows(lay_out([found])) == []


def test_results__free_options_of_detection(tmp_path):
    options = ["DATALOADER.NUM_WORKERS", "8", "SOLVER.CHECKPOINT_PERIOD", "500", "SEED", "3"]
    folder = detected(tmp_path / "run", weights=pretrained(tmp_path / "made"), options=options)
    assert read_run(folder).differs == {}


def test_results__detection_values_are_those_that_the_trials_had(tmp_path):
    folder = detected(tmp_path / "run", weights=pretrained(tmp_path / "made"))
    (folder / "trial_0").mkdir()
    trial = {"SOLVER": {"MAX_ITER": 25000, "STEPS": [100]}, "MODEL": {"ANYTHING": 1}}
    (folder / "trial_0" / "trial.yaml").write_text(yaml.safe_dump(trial))
    differ = read_run(folder).differs
    assert differ["SOLVER.STEPS"] == ([100], [17000])
    assert "MODEL.ANYTHING" not in differ


def test_results__a_detection_config_of_ones_own_is_read(tmp_path):
    file = tmp_path / "voc07_pirl.yaml"
    packaged = "configs/detection/voc07_pirl.yaml"
    file.write_text(f"_BASE_: {__file__.rpartition('/tests/')[0]}/{packaged}\n")
    weights = pretrained(tmp_path / "made")
    assert read_run(detected(tmp_path / "run", str(file), weights)).differs == {}
    file.write_text(file.read_text() + "SOLVER:\n  STEPS: (9000,)\n  MOMENTUM: 0.8\n")
    differ = read_run(detected(tmp_path / "run", str(file), weights)).differs
    assert differ == {"SOLVER.STEPS": ([9000], [9500]), "SOLVER.MOMENTUM": (0.8, "absent")}


def test_results__weights_of_unknown_origin(tmp_path):
    folder = detected(tmp_path / "run", weights=tmp_path / "model.pkl")
    found = read_run(folder)
    assert (found.method, found.differs) == (
        "run, pre-training unknown (null)",
        {"pre-training": ("unknown", None)},
    )
    assert read_run(folder, "PIRL").differs == {}
    assert "config" in read_run(folder, "Supervised").differs  # fine-tuned at another rate
    linear = measured(tmp_path / "linear", tmp_path / "torchvision.pth")
    tables = lay_out([read_run(linear, "Supervised")])
    assert (2, "Supervised") in paper_rows(tables)


def test_results__what_the_files_say_goes_before_the_name(tmp_path):
    made = pretrained(tmp_path / "made", "config.OPTIMIZER.num_epochs=2")
    for name in ("PIRL", "Supervised", "NPID++"):
        found = read_run(measured(tmp_path / "run", made), name)
        assert found.differs
        assert paper_rows(lay_out([found])) == []
    right = read_run(measured(tmp_path / "right", pretrained(tmp_path / "paper")), "Supervised")
    assert right.differs == {"pre-training": ("nearest to PIRL", "Supervised")}


def test_results__moco_schedule_of_other_weights(tmp_path):
    folder = detected(tmp_path / "run", "voc0712_moco24k", pretrained(tmp_path / "made"))
    assert read_run(folder).method == "PIRL (BatchNorm fine-tuned)"
    assert paper_rows(lay_out([read_run(folder)])) == []
    assert read_run(folder, "MoCo (BatchNorm fine-tuned)").differs
    (folder / "results.json").write_text(
        (folder / "results.json").read_text().replace(str(tmp_path / "made"), "elsewhere")
    )
    named = read_run(folder, "MoCo (BatchNorm fine-tuned)")
    assert paper_rows(lay_out([named])) == [(1, "MoCo (BatchNorm fine-tuned)")]
