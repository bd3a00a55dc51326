"""``pirl-plugin knn``: the weighted kNN classifier on a checkpoint's frozen features."""

from __future__ import annotations

import argparse

from pirl_plugin.arguments import (
    HelpFormatter,
    device,
    output_folder,
    positive_number,
    user_path,
    whole_number,
)


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: a checkpoint or images that cannot be used.
    """
    options = _parse(arguments)
    from pirl_plugin.evaluation.knn_run import evaluate_knn
    from pirl_plugin.utils.outputs import write_json

    try:
        results = evaluate_knn(
            options.checkpoint,
            options.data,
            k=options.k,
            temperature=options.temperature,
            size=options.size,
            batch=options.batch,
            workers=options.workers,
            device=options.device,
            trust_pickle=options.trust_pickle,
        )
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    print(
        f"kNN top-1 {results['knn_top1']:.2f} % (k = {results['k']}, {results['train_images']} "
        f"images of {results['classes']} classes, {results['test_images']} tested, "
        f"{results['unreadable']} unreadable)"
    )
    if options.out is not None:
        write_json(options.out / "results.json", results)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin knn",
        description="Measure the top-1 accuracy of a k-nearest-neighbour classifier on the frozen "
        "features of a checkpoint (Wu et al. 2018).",
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add("--checkpoint", type=user_path, required=True, help="any that pirl-plugin export reads")
    add("--trust-pickle", action="store_true", help="as in pirl-plugin export")
    add(
        "--data",
        type=user_path,
        help="folder with train/CLASS/* and val/CLASS/* (or validation/) (default: that of the run "
        "which made the checkpoint, from its train_config.yaml)",
    )
    add("--out", type=output_folder, help="folder for results.json")
    add("--k", type=whole_number(1), default=20, help="neighbours that vote")
    add(
        "--temperature",
        type=positive_number,
        default=0.07,
        help="of the votes",
    )
    add(
        "--size",
        type=whole_number(1, 4096),
        help="side of the crops, pixels (default: that of the run's images; 224 without a "
        "train_config.yaml)",
    )
    add("--batch", type=whole_number(1), default=128, help="images at a time")
    add(
        "--workers",
        type=whole_number(0),
        help="processes that decode (default: by cores and images)",
    )
    add("--device", type=device, help="cpu, cuda or cuda:N (default: cuda where there is a GPU)")
    return parser.parse_args(arguments)
