"""A run ends if reading an image hangs."""

import os

import pytest

from tests.helpers.host_runs import settings
from tests.helpers.launched import gone, quiet, started


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "workers"), [(1, 0), (1, 1), (2, 1)])
def test_run__ends_on_hanging_read(processes, workers, image_folder, tmp_path):
    """The read hangs in a worker or, without workers, in the rank itself."""
    overrides = [
        *settings(image_folder, tmp_path, epochs=1, processes=processes, workers=workers),
        "config.HOOKS.PIRL_RUN.timeout_minutes=0.3",
    ]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "def hang(event, arguments):\n"
        "    if event == 'open' and str(arguments[0]).endswith('train/ants/3.jpg'):\n"
        "        import time; time.sleep(1000)\n"
        "sys.addaudithook(hang)\n"
    )
    with started(overrides, tmp_path / "console", PYTHONPATH=path) as training:
        assert training.status() == 1
        assert "no image was read for 0.3 minutes (config.HOOKS.PIRL_RUN.timeout_" in training.err
        assert "train/ants/3.jpg does not return" in quiet(training)
        assert training.err.splitlines()[-1] == quiet(training)
        assert gone(training)
