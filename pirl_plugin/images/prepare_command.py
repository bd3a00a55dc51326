"""``pirl-plugin prepare``: copy a folder of images at a smaller size, for faster reading."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pirl_plugin.system.arguments import WholeNumber, command_parser, input_path, user_path
from pirl_plugin.system.cores import usable_cores
from pirl_plugin.system.loader import prepare_workers


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if no images could be copied, else 0."""
    options = _parse(arguments)
    prepare_workers("pirl_plugin.images.prepare", options.workers)
    from pirl_plugin.images.prepare import prepare

    return prepare(options)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = command_parser(
        "prepare",
        "Make a smaller copy of a folder of images, with the same folders and names.",
        "IMAGENET/train IMAGENET256/train",
    )
    parser.usage = "%(prog)s [options] IN OUT"
    add = parser.add_argument
    add("input", metavar="IN", type=input_path, help="folder with images")
    add("output", metavar="OUT", type=user_path, help="new folder, or an incomplete copy")
    add(
        "--size",
        type=WholeNumber(1),
        default=256,
        help="shorter side of a copy in pixels (default: %(default)s)",
    )
    add("--nodata", type=float, metavar="VALUE", help="value of missing pixels, which stay missing")
    add(
        "--workers", type=WholeNumber(0), default=usable_cores(),
        help="worker processes; 0 runs in this process (default: %(default)s)",
    )  # fmt: skip
    return parser.parse_args(arguments)
