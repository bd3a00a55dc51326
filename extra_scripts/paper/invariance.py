"""Embedding distances between images and transformed images (Fig. 4)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pirl_plugin import cli
from pirl_plugin.system import arguments as shared
from pirl_plugin.system.files import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = {
    "heads": "BatchNorm's running statistics",
    "own_statistics": "separate BatchNorm statistics for each kind of input",
}


def main(arguments: list[str]) -> None:
    """Run the command."""
    options = _parse(arguments)
    from invariance_measure import measure_invariance

    results = measure_invariance(options)
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "invariance.json", results)
    figure = draw(results["models"])
    figure.savefig(out / "invariance.svg", metadata={"Date": None})
    figure.savefig(out / "invariance.png", dpi=200)
    print(
        f"l2 distances between unit vectors, {results['images']} images, "
        f"{results['transforms']} transforms of each:"
    )
    for model in results["models"]:
        for kind, title in _KINDS.items():
            same = model[kind]["same"]
            different = model[kind]["different"]
            print(
                f"  {model['name']}, {title}: same image {same['mean']:.3f} ± {same['std']:.3f}, "
                f"different images {different['mean']:.3f} ± {different['std']:.3f}"
            )
        print(f"    compared: {model['representation']}; {model['image_size']}-px images")
    print(f"In {out}: invariance.json, invariance.svg, invariance.png")


def draw(models: list[dict[str, Any]]) -> Figure:
    """Draw the distributions (Fig. 4), with dashed lines for different images.

    Args:
        models: as in ``invariance.json``.
    """
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.6), layout="constrained")
    for axes, (kind, title) in zip(figure.subplots(2), _KINDS.items(), strict=True):
        for i, model in enumerate(models):
            for key, style in (("same", "-"), ("different", "--")):
                summary = model[kind][key]
                density = summary["density"]
                edges = np.linspace(0, 2, len(density) + 1)
                spread = f"{summary['mean']:.2f} ± {summary['std']:.2f}"
                label = f"{model['name']}, {key} image ({spread})"
                axes.stairs(density, edges, color=f"C{i}", ls=style, label=label)
        axes.set(title=f"$f(v_I)$ and $g(v_{{I^t}})$, {title}", xlim=(0, 2), ylabel="density")
        axes.set_xlabel("$l_2$ distance between unit vectors")
        axes.legend(frameon=False, fontsize=8)
    return figure


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = shared.Parser(
        prog="invariance.py",
        description="Measure the distances between embeddings of an image and its transformed "
        "versions, and of different images (Fig. 4).\n"
        "Example: python extra_scripts/paper/invariance.py --checkpoint "
        "runs/mine/checkpoint.torch --data IMAGENET/train --out runs/invariance",
    )
    add = parser.add_argument
    add("--checkpoint", nargs="+", required=True, **shared.CHECKPOINT["--checkpoint"])
    for option, settings in shared.NETWORK.items():
        add(option, **settings)
    add(
        "--data",
        type=shared.user_path,
        required=True,
        help="folder with images, such as IMAGENET/train",
    )
    add("--out", type=shared.output_folder, required=True, help="folder for invariance.json, .svg")
    add(
        "--images",
        type=shared.WholeNumber(2),
        default=1000,
        help="number of random images (default: %(default)s)",
    )
    add(
        "--transforms",
        type=shared.WholeNumber(1),
        default=4,
        help="versions per image (default: %(default)s)",
    )
    add(
        "--seed",
        type=shared.WholeNumber(0),
        default=0,
        help="seed for images and transforms (default: %(default)s)",
    )
    size = "pixels, if the run has no size (default: another run's size, or 224)"
    add("--size", type=shared.WholeNumber(1, 4096), help=size)
    add(
        "--device",
        type=shared.device_name,
        default="auto",
        help="cpu, cuda:N, or auto: a GPU (default: %(default)s)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    cli.main(main)
