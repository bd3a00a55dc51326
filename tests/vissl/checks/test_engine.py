"""Configurations for the host's SVM scripts are not trained by its engine."""

import pytest

from pirl_plugin.vissl.checks.engine import check_engine
from pirl_plugin.vissl.launch.train import main
from tests.helpers.configs import compose
from tests.helpers.host_runs import run

SVM = "config=benchmark/pirl/svm_voc07"


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize("kind", ["", "_low_shot"])
def test_train__names_the_script_of_the_svms(kind, dry, tmp_path, monkeypatch):
    """It trained, and ended in a TypeError of the loss."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main([*dry, f"{SVM}{kind}", "config.DATA.TRAIN.DATA_PATHS=[nowhere]"])
    assert str(stopped.value) == (
        f"pirl_plugin: {SVM}{kind}: expected VISSL's SVM script, which extracts features first; "
        f"write python -m tools.train_svm{kind} {SVM}{kind} …"
    )
    assert list(tmp_path.iterdir()) == []


def test_host__names_the_script_of_the_svms(tmp_path):
    result = run(SVM, f"config.CHECKPOINT.DIR={tmp_path / 'out'}", check=False)
    assert result.returncode == 1
    assert "write python -m tools.train_svm config=benchmark" in result.stderr
    assert not (tmp_path / "out").exists()


def test_check_engine__lets_pass_what_extracts_features_and_what_trains():
    check_engine(compose(SVM), "extract_features", [SVM])
    check_engine(compose("config=benchmark/pirl/quick_linear"), "train", [])
    with pytest.raises(SystemExit, match=r"EXTRACT_TRUNK_FEATURES_ONLY = true: expected VISSL's"):
        check_engine(compose(SVM), "train", [])
