"""The parts of a check: the tests marked ``gpu``, file by file, and the benchmarks on the GPU."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]  # of the clone
_HOST = ("vissl", "hydra", "omegaconf", "iopath", "fvcore")
_TESTS = ("pytest", "numpy", "PIL", "triton")


@dataclass(frozen=True)
class Part:
    """What is run and recorded as one; a cut loses one part at most.

    Attributes:
        name: as in ``gpu.json``.
        seconds: it is not started with less time left, and has failed if it takes 3 times as long.
        arguments: of Python; the last two are an option and the place of its file of results.
        needs: modules without which it is skipped.
        takes_photos: whether it has the option ``--data`` for a folder of photos.
    """

    name: str
    seconds: float
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    takes_photos: bool = False

    @property
    def limit(self) -> float:
        """Seconds after which it hangs rather than works."""
        return 3 * self.seconds

    @property
    def is_tests(self) -> bool:
        """Whether its results are those of pytest."""
        return self.arguments[-1].startswith("--junitxml")

    def command(self, results: Path, photos: Path | None = None) -> list[str]:
        """Program and arguments, with the file that its results go to, and the photos."""
        *arguments, option = self.arguments
        data = [f"--data={photos}"] if photos is not None and self.takes_photos else []
        return [sys.executable, *arguments, *data, f"{option}={results}"]

    def missing(self) -> list[str]:
        """Modules that it needs and that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def _tests(name: str, seconds: float, needs: tuple[str, ...] = ()) -> Part:
    options = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfs", "-m", "gpu")
    file = f"tests/gpu/test_{name}.py"
    arguments = (*options, f"--rootdir={ROOT}", str(ROOT / file), "--junitxml")
    return Part(f"tests: {name}", seconds, arguments, (*_TESTS, *needs))


def _benchmark(
    title: str, seconds: float, name: str, *options: str, needs: tuple[str, ...] = ()
) -> Part:
    arguments = ("-m", "pirl_plugin", "benchmark", name, *options, "--json")
    packages = ("numpy", "tabulate", "PIL", *needs)
    return Part(f"benchmark: {title}", seconds, arguments, packages, name != "loss")


def _loss(batch: int) -> Part:
    # Most of it makes the banks.
    options = ("--device", "cuda", "--batch", str(batch), "--negatives", "32000", "--rounds", "20")
    return _benchmark(f"loss, B = {batch}", 90, "loss", *options)


def _step(precision: str) -> Part:
    options = ("--device", "cuda", "--precision", precision, "--batch", "32", "64", "128", "256")
    return _benchmark(f"step, {precision}", 60, "step", *options)


# Rows of 154 MB: a bank that fits into the GPU's cache flatters the loss.
_TRAIN = (
    *("--device", "cuda", "--depth", "50", "--workers", "8"),
    *("--negatives", "32000", "--rows", "300000"),
)

# In the order in which they are run: what is quick and says most comes first.
PARTS = (
    _tests("draw", 30),
    _tests("engine_choice", 60),
    _tests("estimators", 120),
    _loss(32),
    _tests("bank", 30),
    _tests("step", 120),
    _step("bfloat16"),
    _tests("distributed", 90),
    _tests("evaluation", 60),
    _tests("training", 60),
    _loss(256),
    _step("tf32"),
    _step("float32"),
    _tests("compile", 90),
    _tests("host", 180, _HOST),
    _tests("large_table", 120),
    _benchmark("pipeline", 60, "pipeline", "--workers", "8", needs=_HOST),
    _benchmark("train", 240, "train", *_TRAIN, needs=_HOST),
)
