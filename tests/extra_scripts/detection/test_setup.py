"""With Detectron2: the paper's schedule, and the checks before a run."""

import numpy as np
import pytest
import torch
from detectron2_setup import find_config, load_config, metric_kind

from pirl_plugin.vissl.host_config import config_root
from tests.helpers.detection import needs_detectron2

pytestmark = needs_detectron2

FILES = sorted((config_root() / "detection").glob("*.yaml"))


def rates(config):
    """The learning rate at every iteration."""
    from detectron2.solver import build_lr_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.SOLVER.BASE_LR)
    scheduler = build_lr_scheduler(config, optimizer)
    trace = []
    for _ in range(config.SOLVER.MAX_ITER):
        trace.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return np.array(trace)


def test_learning_rate__matches_appendix_at_every_iteration(subtests):
    for name, base, warmup, drop, iterations in (
        ("voc07_pirl", 0.003, 1000, 9500, 12_500),
        ("voc0712_pirl", 0.003, 1000, 17_000, 25_000),
        ("voc07_supervised_jigsaw", 0.02, 100, 9500, 12_500),
        ("voc0712_supervised_jigsaw", 0.02, 100, 17_000, 25_000),
    ):
        with subtests.test(name=name):
            trace = rates(load_config(find_config(name)))
            step = np.arange(iterations)
            # Linear from base / 3 to base, and base / 10 at the end.
            expected = np.full(iterations, base)
            expected[:warmup] = base * (1 / 3 + (2 / 3) * step[:warmup] / warmup)
            expected[drop:] = base / 10
            np.testing.assert_allclose(trace, expected, rtol=1e-9)
            if name == "voc07_pirl":
                assert trace[[0, 500, 1000, 9499, 9500]] == pytest.approx(
                    [0.001, 0.002, 0.003, 0.003, 0.0003]
                )


def test_configs__have_only_keys_known_to_detectron2(subtests):
    for file in FILES:
        with subtests.test(file=file.stem):
            assert load_config(file).VERSION == 2  # an unknown key would have raised


def test_fewer_gpus__scale_rate_and_iterations():
    from detectron2.engine import DefaultTrainer

    config = DefaultTrainer.auto_scale_workers(load_config(find_config("voc07_pirl")), 1)
    solver = config.SOLVER
    assert (solver.IMS_PER_BATCH, solver.BASE_LR) == (2, pytest.approx(0.003 / 8))
    assert (solver.MAX_ITER, solver.STEPS, solver.WARMUP_ITERS) == (100_000, (76_000,), 8000)


def test_load_config__refuses_unknown_key():
    with pytest.raises((KeyError, AssertionError), match=r"SOLVER\.BASE_RATE"):
        load_config(find_config("voc07_pirl"), ["SOLVER.BASE_RATE", "1"])


def test_metric__is_named():
    assert metric_kind("voc_2007_test").startswith("PASCAL VOC 2007, 11 recall points")
    assert metric_kind("voc_2012_val").startswith("PASCAL VOC 2010 and later")
    assert metric_kind("coco_2017_val").startswith("COCO")
