"""``Task`` matches VISSL's task in each installed VISSL."""

import json
import os
from pathlib import Path

import pytest

from tests.configs.test_pretrain_runs import check_trained, overrides_of
from tests.helpers.programs import run_python

ROOT = Path(__file__).parents[2]
MAIN = os.environ.get("PIRL_VISSL_MAIN", "")
HOSTS = [
    pytest.param("", id="wheel"),
    pytest.param(
        MAIN,
        id="main",
        marks=[
            pytest.mark.host_main,
            pytest.mark.skipif(not MAIN, reason="PIRL_VISSL_MAIN names no checkout of git main"),
        ],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("checkout", HOSTS)
def test_task__has_every_attribute_in_a_real_run(checkout, image_folder, tmp_path):
    """An NPID run, whose model has a single output, trains."""
    overrides = overrides_of("npid_8node", image_folder / "val", tmp_path)
    path = f"{ROOT}:{checkout}" if checkout else str(ROOT)
    words = [ROOT / "tests/helpers/task_probe.py", *overrides, "+config/pirl/models=resnet10"]
    result = run_python(*words, folder=tmp_path, PYTHONPATH=path)
    assert json.loads(result.stdout.splitlines()[-1]) == {}
    check_trained("npid_8node", tmp_path)
