"""What is done before a launch, and the line at its start."""

from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin import __version__
from pirl_plugin.host.compat.evaluation_patches import remove_old_features
from pirl_plugin.host.launch.launcher import banner


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
