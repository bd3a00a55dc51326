"""``pirl-plugin export IN OUT --to detectron2|torchvision|safetensors|vissl|timm``."""

from __future__ import annotations

import argparse
import sys

from pirl_plugin.arguments import user_path


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status, 1 with one sentence where nothing was written."""
    options = _parse(arguments)
    from pirl_plugin.checkpoints.compare import truncate
    from pirl_plugin.checkpoints.export import export_checkpoint
    from pirl_plugin.checkpoints.formats import lines_file
    from pirl_plugin.checkpoints.loading_lines import loading_lines, missing_library

    try:
        found = export_checkpoint(
            options.checkpoint,
            options.out,
            options.to,
            trunk=options.trunk,
            trust_pickle=options.trust_pickle,
            results=options.results,
        )
    except (OSError, ValueError) as error:
        print(f"pirl_plugin: {error}", file=sys.stderr)
        return 1
    ignored = f"; not part of it: {truncate(found.ignored)}" if found.ignored else ""
    where = f" at '{found.found_at}'" if found.found_at else ""
    print(
        f"{options.out}: {found.title}, {len(found.weights())} tensors, from {options.checkpoint}"
        f"{where}{ignored}"
    )
    if missing := missing_library(found, options.to):
        print(f"{missing}; the file is written, and this package's WideResNet loads it")
    print(f"To load it:\n\n{loading_lines(found, options.to, options.out)}")
    if beside := lines_file(options.out, options.to):
        print(f"\nThese lines are in {beside} too.")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin export",
        description="Write the trunk of a checkpoint for Detectron2, torchvision, timm or VISSL, "
        "and print the lines that load it.",
    )
    parser.add_argument("checkpoint", metavar="IN", type=user_path, help="VISSL's, torch's, ours")
    parser.add_argument(
        "out",
        metavar="OUT",
        type=user_path,
        help=".pkl, .pth, .safetensors, .torch; for timm a folder",
    )
    parser.add_argument(
        "--to",
        choices=("detectron2", "torchvision", "safetensors", "vissl", "timm"),
        required=True,
        help="vissl: a file for config.MODEL.WEIGHTS_INIT.PARAMS_FILE; timm: a folder with "
        "config.json, model.safetensors and a model card",
    )
    parser.add_argument(
        "--trunk", metavar="KEYS", help="which trunk to take, where the file holds several"
    )
    parser.add_argument(
        "--results",
        metavar="JSON",
        type=user_path,
        nargs="+",
        default=[],
        help="measurements for timm's model card, beside those found with the checkpoint's run: "
        "results.json of pirl-plugin knn, detection or results",
    )
    parser.add_argument(
        "--trust-pickle",
        action="store_true",
        help="let the file run code, where safe loading refuses it and you trust its writer",
    )
    return parser.parse_args(arguments)
