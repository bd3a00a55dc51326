"""Files that a run cannot start from are refused before it; all others pass."""

import pytest
import torch

from pirl_plugin.checkpoints.initial_weights import follow_links
from pirl_plugin.vissl.checks.initial_weights import check_initial_weights
from pirl_plugin.vissl.import_hook import finder
from tests.helpers.configs import compose
from tests.helpers.host_tools import run_tool, write_checkpoint

LINEAR = ["config=benchmark/pirl/linear_imagenet1k", "+config/pirl/linear=resnet18"]
ENSEMBLE = [
    "config=benchmark/pirl/ensemble_imagenet1k",
    "+config/pirl/linear=resnet18_ensemble",
]

finder.install()


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (LINEAR, r"WEIGHTS_INIT\.PARAMS_FILE = 'CHECKPOINT'"),
        (["config=benchmark/pirl/ensemble_imagenet1k"], r"PARAMS_FILES\[0\] = 'CHECKPOINT_1'"),
    ],
)
def test_check_initial_weights__names_what_is_not_there(overrides, key):
    with pytest.raises(SystemExit, match=f"{key}: expected a file that exists; name") as stopped:
        check_initial_weights(compose(*overrides))
    assert len(str(stopped.value).splitlines()) == 1


def test_follow_links__ends_where_a_link_leads_to_itself(tmp_path):
    """The command hung before its first check."""
    file = tmp_path / "model_phase1.torch"
    file.symlink_to(file)
    config = compose(*LINEAR, f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={file}")
    follow_links(config)
    with pytest.raises(SystemExit, match="expected a file that exists"):
        check_initial_weights(config)


def test_check_initial_weights__refuses_an_ensembles_files_where_the_trunk_takes_none():
    """An overlay of one network silently replaced the ensemble by it, at random."""
    with pytest.raises(SystemExit, match=r"'pirl_resnet': expected pirl_ensemble, .*_ensemble$"):
        check_initial_weights(
            compose(
                "config=benchmark/pirl/ensemble_imagenet1k",
                "+config/pirl/linear=resnet18",
                "config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES=[a.torch,b.torch]",
            )
        )


def test_check_initial_weights__accepts_files_and_random_initialisation(tmp_path):
    file = write_checkpoint(tmp_path / "trunk.torch")
    for value in (file, ""):
        check_initial_weights(compose(*LINEAR, f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={value}"))


class Planted:
    """A pickle of this object creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("ensemble", [False, True])
def test_check_initial_weights__runs_no_code_of_a_planted_file(ensemble, tmp_path):
    file = tmp_path / "planted.torch"
    trunk = torch.load(write_checkpoint(tmp_path / "trunk.torch"))
    torch.save({**trunk, "args": Planted(tmp_path / "ran")}, file)
    overrides = [*LINEAR, f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={file}"]
    section = "config.MODEL.WEIGHTS_INIT"
    if ensemble:
        section = "config.MODEL.TRUNK.PIRL_ENSEMBLE"
        overrides = [
            "config=benchmark/pirl/ensemble_imagenet1k",
            "+config/pirl/linear=resnet18_ensemble",
            f"{section}.PARAMS_FILES=[{file},{file}]",
        ]
    with pytest.raises(SystemExit, match=r"safe loading refuses .*open") as stopped:
        check_initial_weights(compose(*overrides))
    assert f"add ++{section}.TRUST_PICKLE=True" in str(stopped.value)
    assert len(str(stopped.value).splitlines()) == 1
    assert not (tmp_path / "ran").exists()
    check_initial_weights(compose(*overrides, f"++{section}.TRUST_PICKLE=True"))
    assert (tmp_path / "ran").exists()


def test_check_initial_weights__names_a_damaged_file(tmp_path):
    file = write_checkpoint(tmp_path / "trunk.torch", DEPTH=10)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(SystemExit, match=r"another check sum than when saved"):
        check_initial_weights(compose(*LINEAR, f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={file}"))


def test_host__ends_a_mismatch_in_one_sentence(image_folder, tmp_path):
    file = write_checkpoint(tmp_path / "small.torch", DEPTH=10)
    result = run_tool(
        "run_distributed_engines.py",
        *LINEAR,
        "+config/pirl/machines=cpu",
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
        f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={file}",
        f"config.CHECKPOINT.DIR={tmp_path / 'out'}",
        check=False,
    )
    assert result.returncode == 1
    assert not (tmp_path / "out").exists()
    assert f"pirl_plugin: {file} does not fit the trunk 'pirl_resnet': 40 of 100" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("ensemble", [False, True])
def test_check_initial_weights__refuses_what_does_not_fit(ensemble, tmp_path):
    """The ranks found it, once all of them were started; ``--dry-run`` said all was checked."""
    good, small = (write_checkpoint(tmp_path / f"{d}.torch", DEPTH=d) for d in (18, 10))
    key = "config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES"
    given = {
        False: lambda *files: [*LINEAR, f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={files[-1]}"],
        True: lambda *files: [*ENSEMBLE, f"{key}=[{files[0]},{files[-1]}]"],
    }[ensemble]
    check_initial_weights(compose(*given(good, good)))
    with pytest.raises(SystemExit, match=r"10\.torch does not fit the trunk '(pirl_)?resnet'"):
        check_initial_weights(compose(*given(good, small)))
