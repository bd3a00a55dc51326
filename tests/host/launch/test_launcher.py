"""What is done before a launch, and the line at its start."""

import pytest
import yaml
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin import __version__
from pirl_plugin.__main__ import main
from pirl_plugin.host.compat.evaluation_patches import remove_old_features
from pirl_plugin.host.launch.launcher import _guarded, banner


def config(*overrides):
    overrides = ["config=pretrain/pirl/quick_jigsaw", *overrides]
    return convert_to_attrdict(compose_hydra_configuration(overrides), dump_config=False)[1]


def test_remove_old_features__leaves_all_else(tmp_path):
    for name in ("rank1_chunk0_train_res5_inds.npy", "test_ap.npy", "rank1.txt"):
        (tmp_path / name).touch()
    remove_old_features(config(f"config.CHECKPOINT.DIR={tmp_path}"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank1.txt", "test_ap.npy"]


def test_banner__says_versions_and_mends(monkeypatch):
    assert banner().startswith(f"pirl_plugin {__version__} on VISSL 0.1.6; patched: ")
    assert len(banner().splitlines()) == 1
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
