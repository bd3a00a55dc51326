"""Components of a detection run that do not need Detectron2."""

import json
import sys
import textwrap
import types

import pytest
import torch
import train_net as command
from detectron2_setup import find_config, load_config, require_detectron2
from fvcore.common.config import CfgNode
from train_net import summarize
from trial import check_loaded


def test_summarize__covers_finished_trials():
    trials = [
        {"AP": 44.0, "AP50": 73.0, "AP75": 46.0},
        {"seed": 1, "error": "exit status 1"},
        {"AP": 45.0, "AP50": 73.0, "AP75": 48.0},
    ]
    summary = summarize(trials)
    assert summary["finished"] == 2
    assert summary["mean"] == {"AP": 44.5, "AP50": 73.0, "AP75": 47.0}
    # AP: √((0.5² + 0.5²) / 1); AP75: √((1 + 1) / 1)
    assert summary["sd"] == pytest.approx({"AP": 0.5**0.5, "AP50": 0.0, "AP75": 2**0.5})
    assert summarize(trials[:2])["sd"] is None
    assert summarize(trials[1:2]) == {"finished": 0, "mean": None, "sd": None}


WEIGHTS = {"stem.conv1.weight": torch.ones(2), "res5.0.conv1.norm.running_var": torch.ones(3)}
MODEL = {
    "backbone.stem.conv1.weight": torch.ones(2),
    "roi_heads.res5.0.conv1.norm.running_var": torch.ones(3),
    "roi_heads.res5.0.conv1.norm.num_batches_tracked": torch.tensor(0),
    "roi_heads.res5.norm.weight": torch.ones(4),  # MoCo's extra layer is not pre-trained
    "roi_heads.box_predictor.cls_score.weight": torch.rand(4),
    "proposal_generator.rpn_head.conv.weight": torch.rand(4),
}


def test_check_loaded__accepts_model_with_the_weights():
    check_loaded(MODEL, WEIGHTS)
    pyramid = {n.replace("roi_heads", "backbone.bottom_up"): t for n, t in MODEL.items()}
    check_loaded(pyramid, WEIGHTS)


def test_check_loaded__refuses_any_difference(subtests):
    for model, weights, match in (
        ({"backbone.stem.conv1.weight": torch.zeros(2)}, {}, r"different values in stem\.conv1"),
        ({"roi_heads.res5.0.conv1.norm.running_var": torch.zeros(3)}, {}, "different values in"),
        ({"backbone.res2.0.conv1.weight": torch.zeros(2)}, {}, r"1 not in the file: res2\.0"),
        ({}, {"res4.9.conv1.weight": torch.ones(2)}, r"1 of 3 missing: res4\.9"),
    ):
        with subtests.test(match=match), pytest.raises(ValueError, match=match):
            check_loaded(MODEL | model, WEIGHTS | weights)


def test_check_loaded__refuses_names_under_a_prefix():
    prefixed = {f"module.{n}": t for n, t in WEIGHTS.items()}
    with pytest.raises(ValueError, match=r"2 of 2 missing: module\.stem"):
        check_loaded(MODEL, prefixed)


def test_find_config__accepts_name_or_path(tmp_path):
    assert find_config("voc07_pirl").name == "voc07_pirl.yaml"
    (tmp_path / "mine.yaml").write_text("VERSION: 2\n")
    assert find_config(str(tmp_path / "mine.yaml")) == tmp_path / "mine.yaml"
    with pytest.raises(ValueError, match=r"voc08: no such file\. Choose one of coco_c4_1x, .*"):
        find_config("voc08")


def test_load_config__executes_no_code(tmp_path, monkeypatch):
    class Detectron2Config(CfgNode):
        """Allows unsafe YAML unless told otherwise, as Detectron2's own class does."""

        def merge_from_file(self, cfg_filename, allow_unsafe=True):
            self.merge_from_other_cfg(
                CfgNode(self.load_yaml_with_base(cfg_filename, allow_unsafe=allow_unsafe))
            )

    module = types.ModuleType("detectron2.config")
    module.get_cfg = lambda: Detectron2Config({"SEED": -1})
    monkeypatch.setitem(sys.modules, "detectron2", types.ModuleType("detectron2"))
    monkeypatch.setitem(sys.modules, "detectron2.config", module)
    (tmp_path / "plain.yaml").write_text("SEED: 3\n")
    assert load_config(tmp_path / "plain.yaml", ["SEED", "4"]).SEED == 4
    ran = tmp_path / "ran"
    (tmp_path / "code.yaml").write_text(f"SEED: !!python/object/apply:os.mkdir ['{ran}']\n")
    (tmp_path / "base.yaml").write_text("_BASE_: code.yaml\n")
    for name in ("code", "base"):
        with pytest.raises(ValueError, match=rf"{name}\.yaml: not plain YAML"):
            load_config(tmp_path / f"{name}.yaml")
    assert not ran.exists()


def test_without_detectron2__explains_how_to_install_it(monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == "detectron2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "detectron2", None)
    with pytest.raises(ModuleNotFoundError, match="Detectron2 is not installed"):
        require_detectron2()


STAND_IN = """\
#!/bin/sh
# Takes the place of Python: gets trial.py FOLDER NUM_GPUS.
echo "ran" >> "$2/count"
case "$2" in
  *trial_1) echo "RuntimeError: out of memory"; exit 3;;
esac
seed=${2##*_}
echo '{"AP": 5'$seed', "AP50": 80.0, "AP75": 55.0, "seed": '$seed'}' > "$2/result.json"
"""


def test_failed_trial__keeps_other_and_finished_trials(tmp_path, monkeypatch, capsys):
    python = tmp_path / "python"
    python.write_text(textwrap.dedent(STAND_IN))
    python.chmod(0o755)
    out = tmp_path / "out"
    run = {"config": "voc07_pirl", "metric": "11 recall points"}
    config = CfgNode({"SEED": -1, "OUTPUT_DIR": ""})
    monkeypatch.setattr(command.sys, "executable", str(python))
    monkeypatch.setattr(command.detectron2_setup, "require_detectron2", lambda: None)

    def prepare(options):
        options.num_gpus = 0
        out.mkdir(exist_ok=True)
        return run, config

    monkeypatch.setattr(command, "prepare", prepare)
    weights = tmp_path / "w.pkl"
    weights.touch()
    what = ["--config", "voc07_pirl", "--checkpoint", str(weights)]
    arguments = [*what, "--out", str(out), "--trials", "3"]
    assert command.main(arguments) == 1
    results = json.loads((out / "results.json").read_text())
    assert results["finished"] == 2
    assert [trial["seed"] for trial in results["trials"]] == [0, 2, 1]
    assert results["mean"]["AP"] == 51  # from 50 and 52
    assert "exit status 3: RuntimeError: out of memory" in results["trials"][2]["error"]
    assert "Seed 1 failed" in capsys.readouterr().err
    assert "SEED: 2" in (out / "trial_2" / "trial.yaml").read_text()

    python.write_text(STAND_IN.replace("*trial_1", "*trial_9"))
    assert command.main(arguments) == 0
    assert json.loads((out / "results.json").read_text())["finished"] == 3
    counts = [(out / f"trial_{i}" / "count").read_text().count("ran") for i in range(3)]
    assert counts == [1, 2, 1]

    assert command.main([*arguments[:-1], "4"]) == 0  # one more trial beside the existing ones
    assert json.loads((out / "results.json").read_text())["finished"] == 4
