"""Install the import hook before any test imports VISSL, and make small test images."""

from __future__ import annotations

import copy
import functools
import gc
import io
import os
import re
import sys
from typing import IO, TYPE_CHECKING, Any

# Run Triton's kernels in its interpreter, unless the tests are for a GPU. Triton reads this on
# import, which the conftest of another folder may cause before the options are parsed.
if "PYTEST_XDIST_WORKER" not in os.environ and not re.search(
    "--device[= ]cuda", " ".join(sys.argv)
):
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.vissl.import_hook import finder
from tests.helpers.on_device import TensorsOfTests, move_when_made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FIRST = (  # the slowest modules, so that none is left alone on a worker at the end
    "tests/vissl/test_kill_and_resume.py",
    "tests/test_every_end.py",
    "tests/vissl/run/test_launch.py",
    "tests/quickstart/",
    "tests/checkpoints/",
    "tests/configs/",
    "tests/test_install.py",
    "tests/system/",
    "tests/evaluation/",
    "tests/vissl/",
)

finder.install()
# Tensors are small, and the suite runs beside the processes it starts. With threads in these too,
# a loop with 7 s of CPU time took 40 s, because waiting threads do not sleep.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


@functools.cache
def _parse(text: str) -> Any:
    return load_yaml(io.StringIO(text))


def _load_once(file: IO[str]) -> Any:
    return copy.deepcopy(_parse(file.read()))


# Hydra reads VISSL's defaults for each composition, which takes half the time.
load_yaml = OmegaConf.load
OmegaConf.load = _load_once


@pytest.fixture(autouse=True)
def _own_console() -> Iterator[None]:
    """Restore the console after tests of a start page or a dry run."""
    before = os.environ.get("PIRL_PLUGIN_CONSOLE")
    yield
    os.environ.pop("PIRL_PLUGIN_CONSOLE", None)
    if before is not None:
        os.environ["PIRL_PLUGIN_CONSOLE"] = before


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--device``, such as ``--device cuda``, for tests that run on any device."""
    parser.addoption("--device", default="cpu", help="cpu, cuda or cuda:N")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse unknown devices."""
    name = config.getoption("--device")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise pytest.UsageError(
            f"--device {name}: expected cpu, or cuda or cuda:N of this machine ({reason})"
        ) from None


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device given by ``--device``."""
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def _tensors_on_the_device(
    request: pytest.FixtureRequest, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Run tests marked ``tensors`` on the device, except those marked ``only_cpu``."""
    marked = request.node.get_closest_marker
    if device.type == "cpu" or not marked("tensors") or marked("only_cpu"):
        yield
        return
    for kind in (MemoryBank, PIRLLoss, PIRLHead):
        move_when_made(kind, device, monkeypatch)
    with TensorsOfTests(device):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with slow modules, and allow an hour for tests that take minutes."""

    def place(item: pytest.Item) -> int:
        return next((n for n, path in enumerate(_FIRST) if item.nodeid.startswith(path)), 99)

    items.sort(key=place)
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("walk"):
            item.add_marker(pytest.mark.timeout(3600))


def pytest_collection_finish() -> None:
    """Exclude objects imported by test modules from garbage collection.

    With them, a collection takes 0.4 s, and the loss benchmark triggers one per case.
    """
    gc.freeze()


def pytest_unconfigure() -> None:
    """Undo ``gc.freeze``; otherwise Triton reports leaks."""
    gc.unfreeze()


def _make_image(path: Path, seed: int, size: int = 48) -> None:
    """Write a smooth random image whose colors depend on the seed."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC).save(path)


@pytest.fixture(scope="session")
def make_image() -> Callable[..., None]:
    """Return ``make_image(path, seed, size=48)``, which writes an image in the suffix's format."""
    return _make_image


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: Any) -> Path:
    """Write ``{train,val}/{ants,bees}/*.jpg`` with 2 × 10 and 2 × 4 48-px images."""
    root: Path = tmp_path_factory.mktemp("images")
    for split, count in (("train", 10), ("val", 4)):
        for label, name in enumerate(("ants", "bees")):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                _make_image(folder / f"{i}.jpg", seed=1000 * label + 100 * len(split) + i)
    return root
