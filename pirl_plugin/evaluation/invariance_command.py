"""``pirl-plugin invariance``: how near embeddings of transformed images are to the image's."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pirl_plugin.arguments import (
    HelpFormatter,
    device,
    output_folder,
    user_path,
    whole_number,
)

if TYPE_CHECKING:
    from pirl_plugin.evaluation.invariance_run import InvarianceResults, Kind


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: a checkpoint or images that cannot be used.
    """
    options = _parse(arguments)
    from pirl_plugin.evaluation.invariance_figure import invariance_figure
    from pirl_plugin.evaluation.invariance_run import measure_invariance
    from pirl_plugin.files import write_json

    try:
        results = measure_invariance(
            options.checkpoint,
            options.data,
            images=options.images,
            transforms=options.transforms,
            seed=options.seed,
            image_size=options.image_size,
            device=options.device,
            trust_pickle=options.trust_pickle,
        )
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "invariance.json", results)
    figure = invariance_figure(results["models"])
    figure.savefig(options.out / "invariance.svg", metadata={"Date": None})
    figure.savefig(options.out / "invariance.png", dpi=200)
    print(summary(results))
    print(f"In {options.out}: invariance.json, invariance.svg, invariance.png")


def summary(results: InvarianceResults) -> str:
    """A line for each model, for people."""
    lines = [
        f"l2 distances of unit vectors, {results['images']} images, "
        f"{results['transforms']} transforms of each:"
    ]
    kinds: tuple[tuple[Kind, str], ...] = (
        ("heads", ""),
        ("own_statistics", ", BatchNorm's statistics of each kind of input"),
        ("bank", " against the memory bank"),
    )
    for model in results["models"]:
        for key, what in kinds:
            if found := model[key]:
                same, other = found["same"], found["different"]
                lines.append(
                    f"  {model['name']}{what}: same image {same['mean']:.3f} ± {same['std']:.3f}, "
                    f"different images {other['mean']:.3f} ± {other['std']:.3f}"
                )
        lines.append(f"    compared: {model['representation']}")
        if model["bank_note"]:
            lines.append(f"    memory bank: {model['bank_note']}")
    return "\n".join(lines)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin invariance",
        description="Measure the distances between the unit-norm embeddings of images and of their "
        "transformed versions, as in Fig. 4 of the paper, beside those of different images.",
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add("--checkpoint", type=user_path, nargs="+", required=True, help="one or more models")
    add("--data", type=user_path, required=True, help="folder of images, such as IMAGENET/train")
    add(
        "--out", type=output_folder, required=True, help="folder for invariance.json, .svg and .png"
    )
    add(
        "--images",
        type=whole_number(2),
        default=1000,
        help="images, drawn at random from the folder",
    )
    add("--transforms", type=whole_number(1), default=4, help="transformed versions of each image")
    add("--seed", type=whole_number(0), default=0, help="of images and transforms")
    add(
        "--image-size",
        type=whole_number(1, 4096),
        help="side of the image view, pixels, of a run without one, such as a jigsaw classifier's "
        "(default: another run's, or 224)",
    )
    add("--trust-pickle", action="store_true", help="as in pirl-plugin export")
    add("--device", type=device, help="cpu, cuda or cuda:N (default: cuda where there is a GPU)")
    return parser.parse_args(arguments)
