"""Command lines as users write them: unquoted paths, and mistakes with remedies."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from pirl_plugin.vissl.host_config import quoted
from pirl_plugin.vissl.run.compose import readable_override
from pirl_plugin.vissl.run.computed import RESOLVERS
from tests.helpers.configs import compose

DATA = "config.DATA.TRAIN.DATA_PATHS"
QUICK = "config=pretrain/pirl/quick_jigsaw"


@pytest.mark.parametrize("pattern", ["{}", "[{}]"])
def test_path__needs_no_quotes(pattern, tmp_path):
    for name in (
        *("my photos", "a,b", "a[1]", "jos\u00e9", "a(1)", "it's", "a=b", "a#b", "2024", "1e3"),
        *("null", "{x}", "a:b", "50%"),
    ):
        (tmp_path / name).mkdir()
        override = readable_override(f"{DATA}={pattern.format(tmp_path / name)}")
        value = OverridesParser.create().parse_override(override).value()
        path = str(tmp_path / name)
        assert value == ([path] if pattern == "[{}]" else path)  # VISSL's own configs need a list


def test_file_in_current_folder__replaces_ours_with_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    name = "config/pirl/machines/cpu.yaml"
    folder = tmp_path / "configs"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("# @package _global_\nconfig: {SEED_VALUE: 7}\n")
    (folder / "config" / "mine.yaml").write_text("")
    assert compose(QUICK, "+config/pirl/machines=cpu_small").SEED_VALUE == 7
    assert f"Files in {folder} replace pirl_plugin's: {name}" in caplog.messages


@pytest.mark.parametrize("pattern", ["{}", "[{}]"])
def test_path__may_look_like_a_reference(pattern, tmp_path):
    path = tmp_path / "a${x}b"
    path.mkdir()
    config = compose(
        QUICK, f"{DATA}={pattern.format(path)}", f"config.CHECKPOINT.DIR={quoted(path)}"
    )
    assert config.DATA.TRAIN.DATA_PATHS == [str(path)]
    assert config.CHECKPOINT.DIR == str(path)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<group>[^/]+)/.*_(?P<channel>B\d{2}|B8A),?'x\.tif",
        r"[ab](?P<label>c)[.]tif[f]",
        "(?P<channel>[a-z]+$)",
    ],
)
def test_pattern__needs_no_quotes(pattern):
    key = "config.DATA.TRAIN.PATTERN"
    for override in (f"{key}={pattern}", f"{key}={quoted(pattern)}"):
        config = compose(QUICK, override)
        assert config.DATA.TRAIN.PATTERN == config.DATA.TEST.PATTERN == pattern


def test_path__expands_home_and_current_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    config = compose(
        QUICK,
        f"{DATA}=~/photos",
        "config.DATA.TEST.DATA_PATHS=['~/a',b]",
        "config.CHECKPOINT.DIR=~/r\u00e9sultats, 2",
        "config.MODEL.WEIGHTS_INIT.PARAMS_FILE=2024",
    )
    assert config.DATA.TRAIN.DATA_PATHS == [f"{tmp_path}/photos"]
    assert config.DATA.TEST.DATA_PATHS == [f"{tmp_path}/a", "b"]
    assert config.CHECKPOINT.DIR == f"{tmp_path}/r\u00e9sultats, 2"
    assert config.MODEL.WEIGHTS_INIT.PARAMS_FILE == "2024"


def test_overlay__may_be_in_any_folder(tmp_path):
    overlay = tmp_path / "config/mine/short.yaml"
    overlay.parent.mkdir(parents=True)
    overlay.write_text("# @package _global_\nconfig: {OPTIMIZER: {num_epochs: 3}}\n")
    config = compose(QUICK, f"hydra.searchpath=[file://{tmp_path}]", "+config/mine=short")
    assert config.OPTIMIZER.num_epochs == 3


@pytest.mark.parametrize("cores", [1, 6, 64])
def test_workers__are_limited_to_cores(cores, monkeypatch):
    monkeypatch.setattr("pirl_plugin.vissl.run.computed.usable_cores", lambda: cores)
    for processes in (1, 8):
        section = {"DISTRIBUTED": {"NUM_PROC_PER_NODE": processes}}
        workers = RESOLVERS["pirl_gpu_workers"](12, _root_=OmegaConf.create({"config": section}))
        assert workers == min(12, max(1, cores // processes))


def test_workers__leave_one_thread_on_cpu(monkeypatch):
    monkeypatch.setattr("pirl_plugin.vissl.run.computed.usable_cores", lambda: 6)
    section = {"DISTRIBUTED": {"NUM_PROC_PER_NODE": 2}, "DATA": {"TRAIN": {"TRANSFORMS": []}}}
    config = OmegaConf.create({"config": section})
    for limit, workers in (("", 2), ("2", 1), ("2,1", 1), ("1", 0), ("64", 2)):
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
        assert RESOLVERS["pirl_cpu_workers"](_root_=config) == workers
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # by torchrun, which is not the user's limit
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert RESOLVERS["pirl_cpu_workers"](_root_=config) == 2
