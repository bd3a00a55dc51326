"""The first lines of a run, and a console that a person can read."""

import logging
import sys

import pytest

from pirl_plugin.vissl.start_page import page_of_our_runs, start_page
from tests.helpers.configs import cases, compose
from tests.helpers.host_runs import run, settings


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setenv("PIRL_PLUGIN_CONSOLE", "page")


COMPLETE = [name for name in cases() if not name.startswith("pirl/")]


@pytest.mark.parametrize("name", COMPLETE)
def test_start_page__is_a_few_lines_of_every_config(name, page):
    lines = start_page(compose(f"config={name}"), "banner").splitlines()
    assert lines[0] == "banner"
    assert [line.split()[0] for line in lines[1:]] == ["data", "model", "loss", "batch", "logs"]
    assert f"runs/{name.rpartition('/')[2]}" in lines[-1]


def test_start_page__says_what_the_run_is(page):
    text = start_page(compose("config=pretrain/pirl/jigsaw_8node"), "banner")
    assert "nce, N = 32,000, τ = 0.07, λ = 0.5; bank replicated, float32" in text
    assert "32 × 32 = 1024 images on gpu" in text
    assert "cosine rate 0.12 → 0.00012, 800 epochs" in text
    text = start_page(compose("config=benchmark/pirl/linear_imagenet1k"), "banner")
    assert "step rate 0.01 → 0.001 → 0.0001, 28 epochs" in text


def test_start_page__counts_one_epoch_and_one_worker(page):
    one = ["config.OPTIMIZER.num_epochs=1", "config.DATA.NUM_DATALOADER_WORKERS=1"]
    text = start_page(compose("config=pretrain/pirl/quick_jigsaw", *one), "banner")
    assert ", 1 input worker each; " in text
    assert ", 1 epoch\n" in text


def test_start_page__names_the_network_of_timm_and_the_files_of_an_ensemble(page):
    timm = ["+config/pirl/models=timm", "config.MODEL.TRUNK.PIRL_TIMM.NAME=convnext_atto"]
    text = start_page(compose("config=pretrain/pirl/quick_jigsaw", *timm), "banner")
    assert "pirl_timm, convnext_atto; pirl_head, pirl_head; initial weights: random" in text
    files = "config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES=[a.torch,'']"
    text = start_page(compose("config=benchmark/pirl/ensemble_imagenet1k", files), "banner")
    assert "pirl_ensemble of resnet; eval_mlp" in text
    assert "initial weights: a.torch, random" in text


@pytest.mark.parametrize(
    ("trunk", "said"),
    [
        (["NAME=pirl_resnet", "PIRL_RESNET.DEPTH=18"], "pirl_resnet, depth 18 × 1;"),
        (["NAME=pirl_resnet"], "pirl_resnet, depth 18 × 1;"),
        (["NAME=vision_transformer"], "vision_transformer;"),
    ],
)
def test_start_page__of_trunks_whose_keys_are_left_out(page, trunk, said):
    trunk = [f"++config.MODEL.TRUNK.{option}" for option in trunk]
    text = start_page(compose("config=pretrain/pirl/jigsaw_8node", *trunk), "banner")
    assert f"model     {said}" in text


def test_start_page__gives_the_losss_defaults(page):
    config = compose("config=pretrain/pirl/jigsaw_8node")
    config.LOSS.pirl_loss = {}
    text = start_page(config, "banner")
    assert "nce, N = 32,000, τ = 0.07, λ = 0.5; bank replicated, float32" in text


def test_start_page__of_the_hosts_own_configs_is_the_banner_alone(monkeypatch):
    monkeypatch.delenv("PIRL_PLUGIN_CONSOLE", raising=False)
    config = compose("config=test/integration_test/quick_simclr")
    assert start_page(config, "banner") == "banner"
    assert "PIRL_PLUGIN_CONSOLE" not in __import__("os").environ


class FakeLogger:
    """``vissl.utils.logger`` as far as it matters here."""

    @staticmethod
    def setup_logging(name):
        logger = logging.getLogger(name)
        logger.handlers = [logging.StreamHandler(sys.stdout)]
        logger.setLevel(logging.DEBUG)


@pytest.mark.parametrize("console", ["page", "log"])
def test_console__shows_warnings_alone_where_there_is_a_page(console, monkeypatch, capsys):
    monkeypatch.setenv("PIRL_PLUGIN_CONSOLE", console)
    module = FakeLogger()
    page_of_our_runs(module)
    module.setup_logging("a console of ours")
    logger = logging.getLogger("a console of ours")
    logger.propagate = False
    shown_messages = (
        "The run in runs/a is finished, with runs/a/model_final_checkpoint_phase1.torch",
        "AP for various layers:\n ['res5']: [81.1]",
        "k-value: 2 mean/min/max/std: 30.0",
    )
    for message in ("Setting seed....", *shown_messages):
        logger.info(message)
    logger.warning("Image 3 cannot be read")
    shown = capsys.readouterr().out
    assert ("Setting seed" in shown) == (console == "log")
    assert all(message in shown for message in shown_messages)
    assert "Image 3 cannot be read" in shown


def test_run__fits_on_a_page_and_its_log_is_whole(image_folder, tmp_path):
    console = {"PIRL_PLUGIN_CONSOLE": "page"}
    result = run(*settings(image_folder, tmp_path, epochs=1), environment=console)
    lines = result.stdout.splitlines()
    assert len(lines) < 30
    assert any(line.startswith("training  20 images, 1 epoch, 5 steps") for line in lines)
    assert any(line.startswith("finished  in ") for line in lines)
    log = (tmp_path / "log.txt").read_text()
    assert "iter: 1;" in log
    assert "Training with config" in log
