"""What is done before a launch, and the line at its start."""

import os

import pytest
import yaml
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin import __version__
from pirl_plugin.__main__ import main
from pirl_plugin.checkpoints.training_run import read_config
from pirl_plugin.evaluation.linear_run import svm_map
from pirl_plugin.files import DiskFullError
from pirl_plugin.vissl.launch.launcher import _guarded, banner
from pirl_plugin.vissl.patches.evaluation_patches import remove_old_results
from pirl_plugin.vissl.patches.patches import PATCHED
from tests.helpers.sweeps import finish_svm


def config(*overrides):
    if not overrides or not overrides[0].startswith("config="):
        overrides = ["config=pretrain/pirl/quick_jigsaw", *overrides]
    return convert_to_attrdict(compose_hydra_configuration(list(overrides)), dump_config=False)[1]


def test_remove_old_results__leaves_all_else(tmp_path):
    kept = ["rank1.txt", "rank1_chunk0_test_res5_inds.npy", "test_ap.npy"]
    for name in ("rank1_chunk0_train_res5_inds.npy", *kept):
        (tmp_path / name).touch()
    remove_old_results(config(f"config.CHECKPOINT.DIR={tmp_path}", "config.TEST_MODEL=false"))
    assert sorted(p.name for p in tmp_path.iterdir()) == kept


def test_extraction__of_vissls_own_approaches_removes_nothing(tmp_path):
    """Features of train and test, extracted in two runs into one folder, lost the first."""
    (tmp_path / "rank0_chunk0_test_res5_inds.npy").touch()
    own = config(
        "config=test/integration_test/quick_simclr_multicrop", f"config.CHECKPOINT.DIR={tmp_path}"
    )
    _guarded(lambda cfg, engine_name: None, ())(cfg=own, engine_name="extract_features")
    assert [p.name for p in tmp_path.iterdir()] == ["rank0_chunk0_test_res5_inds.npy"]


def test_extraction__removes_the_results_of_an_earlier_run_before_its_configuration(tmp_path):
    """Killed while it extracts, a second run left the mAP of the first as its own."""
    finish_svm(tmp_path, 71.0)
    (tmp_path / "res5" / "cls0_cost1.0.pickle").touch()  # for SVM.force_retrain=false
    assert svm_map(tmp_path) == {"res5": pytest.approx(71)}
    svm = config(
        "config=benchmark/pirl/svm_voc07",
        f"config.CHECKPOINT.DIR={tmp_path}",
        "config.MODEL.WEIGHTS_INIT.PARAMS_FILE=second.torch",
        "config.MODEL.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP="
        "[[res5, [AdaptiveAvgPool2d, [[1, 1]]]]]",
    )

    def launch(cfg, engine_name):
        assert read_config(tmp_path / "train_config.yaml")["MODEL"]["WEIGHTS_INIT"] == {
            **svm.MODEL.WEIGHTS_INIT,
            "PARAMS_FILE": os.path.abspath("second.torch"),
        }
        with pytest.raises(ValueError, match="is not finished"):
            svm_map(tmp_path)
        return "extracted"

    guarded = _guarded(launch, (), starts_ranks=False)
    assert guarded(cfg=svm, engine_name="extract_features") == "extracted"
    assert [p.name for p in (tmp_path / "res5").iterdir()] == ["cls0_cost1.0.pickle"]


def test_banner__says_versions_and_how_much_was_patched(monkeypatch):
    count = len(PATCHED)
    assert count > 0
    assert banner() == f"pirl_plugin {__version__} on VISSL 0.1.6, patched in {count} places"
    monkeypatch.setattr("vissl.__version__", "9.9")
    assert "VISSL 9.9 is not a host this plugin was tested with (0.1.6 and git main)" in banner()


def interrupted(*args):
    raise KeyboardInterrupt


def test_sigint__before_the_run_is_one_sentence(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        _guarded(None, (interrupted,))(config())
    assert ended.value.code == 130
    assert capsys.readouterr().err == "pirl_plugin: SIGINT: ended before the run began\n"
    monkeypatch.setattr("pirl_plugin.cli.run", interrupted)  # while its modules are imported
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "pirl_plugin: SIGINT: the command has ended\n"


def test_full_disk__is_one_sentence_of_any_command(monkeypatch, capsys):
    def full(words):
        raise DiskFullError("OUT/results.json was not written: the disk is full")

    monkeypatch.setattr("pirl_plugin.cli.run", full)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "pirl_plugin: OUT/results.json was not written: the disk is full\n"
    )


@pytest.mark.parametrize("engine", ["train", "extract_features"])
def test_launch__names_for_good_what_the_link_to_the_newest_checkpoint_leads_to(engine, tmp_path):
    """The link moves on with the pre-training, which counted as that long for the benchmark."""
    (tmp_path / "checkpoint.torch").symlink_to("model_phase49.torch")
    given = config(
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={tmp_path / 'checkpoint.torch'}",
        f"config.CHECKPOINT.DIR={tmp_path}",
    )
    started = []
    launch = _guarded(lambda given, engine_name: started.append(given), (), starts_ranks=False)
    launch(given, engine_name=engine)
    if engine == "extract_features":  # the SVM benchmarks, which save no checkpoint
        written = yaml.safe_load((tmp_path / "train_config.yaml").read_text())
        assert written["MODEL"]["WEIGHTS_INIT"] == dict(given.MODEL.WEIGHTS_INIT)
    (run,) = started
    assert run.MODEL.WEIGHTS_INIT.PARAMS_FILE == str(tmp_path / "model_phase49.torch")
