"""``pirl-plugin export IN OUT --to detectron2|torchvision|safetensors``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pirl_plugin.export.checkpoint import SUFFIXES, export_checkpoint
from pirl_plugin.export.trunk import some


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status, 1 with one sentence where nothing was written."""
    parser = argparse.ArgumentParser(
        prog="pirl-plugin export",
        description="Write the ResNet trunk of a checkpoint for Detectron2, torchvision or timm.",
    )
    parser.add_argument("checkpoint", metavar="IN", type=Path, help="VISSL's, torch's, ours")
    parser.add_argument("out", metavar="OUT", type=Path, help=".pkl, .pth or .safetensors")
    parser.add_argument("--to", choices=tuple(SUFFIXES), required=True)
    parser.add_argument(
        "--trunk", metavar="KEYS", help="which trunk to take, where the file holds several"
    )
    parser.add_argument(
        "--trust-pickle",
        action="store_true",
        help="let the file run code, where safe loading refuses it and you trust its writer",
    )
    options = parser.parse_args(arguments)
    try:
        found = export_checkpoint(
            options.checkpoint,
            options.out,
            options.to,
            trunk=options.trunk,
            trust_pickle=options.trust_pickle,
        )
    except (OSError, ValueError) as error:
        print(f"pirl_plugin: {error}", file=sys.stderr)
        return 1
    ignored = f"; not part of it: {some(found.ignored)}" if found.ignored else ""
    where = f" at '{found.found_at}'" if found.found_at else ""
    print(
        f"{options.out}: {found.title}, {len(found.weights())} tensors, from {options.checkpoint}"
        f"{where}{ignored}"
    )
    return 0
