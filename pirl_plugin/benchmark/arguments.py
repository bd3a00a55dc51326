"""Arguments of ``pirl-plugin benchmark NAME``, which ``--help`` shows without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.losses.config import DTYPES
from pirl_plugin.utils.arguments import positive_number, user_path, whole_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

PRECISIONS = ("float32", "tf32", "bfloat16")  # of a step
_DEVICE = "default: cuda where there is a GPU"
WARM_UP_STEPS = 2  # of a training run, which are not counted


def _pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument("--images", type=whole_number(2), default=64, help="images in a round")
    parser.add_argument(
        "--rounds", type=whole_number(1), default=7, help="times each pipeline is timed"
    )
    parser.add_argument(
        "--workers", type=whole_number(0), default=2, help="of the loaders; 0: no such table"
    )


def _loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help=_DEVICE)
    parser.add_argument(
        "--rows", type=whole_number(2), default=1_281_167, help="images in the bank"
    )
    parser.add_argument(
        "--batch", type=whole_number(1), nargs="+", default=[32, 256], help="images of a step"
    )
    parser.add_argument(
        "--negatives", type=whole_number(1), nargs="+", default=[4096, 32_000], help="N"
    )
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of our bank's rows")
    parser.add_argument(
        "--rounds", type=whole_number(1), default=5, help="times each loss is timed"
    )
    parser.add_argument("--threads", type=whole_number(1), default=1, help="of torch, on a CPU")


def _step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help=_DEVICE)
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument(
        "--images", type=whole_number(2), default=32, help="images, fed again and again"
    )
    parser.add_argument(
        "--depth", type=whole_number(1), default=50, choices=(18, 50), help="of the ResNet"
    )
    parser.add_argument(
        "--precision",
        nargs="+",
        default=list(PRECISIONS),
        choices=PRECISIONS,
        help="of the network",
    )
    parser.add_argument(
        "--batch",
        type=whole_number(1),
        nargs="+",
        default=[32, 64, 128, 256],
        help="images of a step",
    )
    parser.add_argument("--negatives", type=whole_number(1), default=32_000, help="N")
    parser.add_argument(
        "--rows", type=whole_number(2), default=1_281_167, help="images in the bank"
    )
    parser.add_argument(
        "--steps", type=whole_number(1), default=10, help="that are timed, after 3 more"
    )


def _startup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument(
        "--rows", type=whole_number(2), default=1_281_167, help="images in the bank"
    )
    parser.add_argument(
        "--model-mb", type=whole_number(1), default=194, help="a ResNet-50 and its optimiser"
    )
    parser.add_argument("--rounds", type=whole_number(1), default=3, help="times each is timed")
    parser.add_argument(
        "--workers", type=whole_number(0), default=2, help="of the loader; 0: no first batch"
    )


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of the run")
    parser.add_argument(
        "--depth", type=whole_number(1), default=18, help="of the ResNet", choices=(18, 50)
    )
    parser.add_argument("--batch", type=whole_number(1), default=32, help="images of a step")
    parser.add_argument("--negatives", type=whole_number(1), default=4096, help="N")
    parser.add_argument(
        "--rows", type=whole_number(2), default=25_000, help="images, and rows of the bank"
    )
    parser.add_argument(
        "--steps", type=whole_number(1), default=8, help=f"of a run, after {WARM_UP_STEPS} more"
    )
    parser.add_argument("--rounds", type=whole_number(1), default=2, help="runs of each")
    parser.add_argument("--workers", type=whole_number(0), default=0, help="of the loader")
    parser.add_argument("--threads", type=whole_number(1), default=2, help="of the run, on a CPU")


def _overlap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument(
        "--depth", type=whole_number(1), default=18, help="of the ResNet", choices=(18, 50)
    )
    parser.add_argument(
        "--precision", default="float32", choices=("float32", "bfloat16"), help="of the network"
    )
    parser.add_argument(
        "--quick", action="store_true", help="quick_jigsaw, with its own network and N"
    )
    parser.add_argument("--batch", type=whole_number(1), default=32, help="images of a step")
    parser.add_argument("--negatives", type=whole_number(1), default=4096, help="N")
    parser.add_argument(
        "--rows", type=whole_number(2), default=25_000, help="images, and rows of the bank"
    )
    parser.add_argument(
        "--steps", type=whole_number(1), default=16, help=f"of a run, after {WARM_UP_STEPS} more"
    )
    parser.add_argument("--rounds", type=whole_number(1), default=3, help="runs of each")
    parser.add_argument("--workers", type=whole_number(0), default=1, help="beside none")
    parser.add_argument(
        "--threads", type=whole_number(1), help="of the model (default: one a core)"
    )


def _soak(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of the run")
    parser.add_argument("--config", default="pretrain/pirl/quick_jigsaw", help="of the run")
    parser.add_argument("--steps", type=whole_number(1), default=5000, help="of the run")
    parser.add_argument(
        "--images", type=whole_number(2), default=512, help="in the folder: an epoch"
    )
    parser.add_argument("--batch", type=whole_number(1), default=16, help="of a rank")
    parser.add_argument("--processes", type=whole_number(1), default=1, help="ranks")
    parser.add_argument("--workers", type=whole_number(0), default=2, help="of each rank's loader")
    parser.add_argument(
        "--every", type=positive_number, default=5.0, help="seconds between two samples"
    )
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="of the run's config"
    )


def _scale(parser: argparse.ArgumentParser) -> None:
    counts = [1_281_167, 100_000_000, 1_000_000_000]
    parser.add_argument("--rows", type=whole_number(2), nargs="+", default=counts, help="images")
    parser.add_argument(
        "--ranks",
        type=whole_number(1),
        nargs="+",
        default=[8, 32, 128, 1024],
        help="processes, one a GPU",
    )
    parser.add_argument(
        "--batch", type=whole_number(1), default=32, help="images of a rank in a step"
    )
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="of the bank")


ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "pipeline": _pipeline,
    "loss": _loss,
    "step": _step,
    "startup": _startup,
    "train": _train,
    "overlap": _overlap,
    "soak": _soak,
    "scale": _scale,
}
