"""``pirl-plugin invariance``: how near embeddings of transformed images are to the image's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from pirl_plugin.data.decode import UnreadableImageError, decode_image
from pirl_plugin.data.sources.paths import find_images
from pirl_plugin.evaluation.invariance import (
    Distances,
    invariance_distances,
    summarize_distances,
    unit_distances,
)
from pirl_plugin.evaluation.invariance_figure import invariance_figure
from pirl_plugin.evaluation.pretext_model import (
    PretextModel,
    image_size_of,
    load_pretext_model,
    run_config,
    sample_rows,
)
from pirl_plugin.utils.outputs import write_json

_AT_ONCE = 64  # transformed images, each of nine patches


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: a checkpoint or images that cannot be used.
    """
    options = _parse(arguments)
    try:
        results = measure(options)
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "invariance.json", results)
    figure = invariance_figure(results["models"])
    figure.savefig(options.out / "invariance.svg", metadata={"Date": None})
    figure.savefig(options.out / "invariance.png", dpi=200)
    print(summary(results))
    print(f"In {options.out}: invariance.json, invariance.svg, invariance.png")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The distances of each checkpoint on the same images.

    Args:
        options: as the command's arguments.

    Returns:
        ``data``, ``images``, ``transforms``, ``seed`` and ``models``: of each its ``name``,
        ``checkpoint``, ``representation``, ``heads``: the summaries of ``same`` and ``different``,
        and ``bank``: the same of the memory bank's rows, or None with ``bank_note`` saying why.

    Raises:
        FileNotFoundError: a checkpoint or the folder does not exist.
        ValueError: a checkpoint holds no whole ResNet, or there are fewer than two images.
    """
    if not options.data.is_dir():
        raise FileNotFoundError(
            f"--data = {options.data}: expected a folder of images; there is no such folder"
        )
    paths = list(find_images(str(options.data)))
    rows = sample_rows(len(paths), options.images, options.seed)
    configs = [run_config(checkpoint) for checkpoint in options.checkpoint]
    other = next((config for config in configs if image_size_of(config)), None)
    models = []
    for name, checkpoint in zip(_names(options.checkpoint), options.checkpoint, strict=True):
        model = load_pretext_model(checkpoint, options.trust_pickle, other, options.device)
        image, transformed, kept = embed(model, options.data, paths, rows, options, name)
        bank, note = _to_bank(model, transformed, kept, len(paths))
        models.append(
            {
                "name": name,
                "checkpoint": str(checkpoint.resolve()),
                "representation": model.representation,
                "heads": _summaries(invariance_distances(image, transformed)),
                "bank": bank and _summaries(bank),
                "bank_note": note,
            }
        )
    return {
        "data": str(options.data.resolve()),
        "images": len(kept),
        "transforms": options.transforms,
        "seed": options.seed,
        "models": models,
    }


def embed(
    model: PretextModel,
    folder: Path,
    paths: list[str],
    rows: list[int],
    options: argparse.Namespace,
    name: str,
) -> tuple[Tensor, Tensor, list[int]]:
    """Embeddings of images of a folder and of transformed versions of them.

    Returns:
        ``(N, D)``, ``(N, T, D)``, and the N rows: those of images that can be read.
    """
    found, versions, kept = [], [], []
    per_batch = max(1, _AT_ONCE // options.transforms)
    bar = tqdm(total=len(rows), desc=name, unit=" images", mininterval=2)
    for start in range(0, len(rows), per_batch):
        drawn = []
        for row in rows[start : start + per_batch]:
            bar.update()
            try:
                pixels = decode_image((folder / paths[row]).read_bytes())
            except (OSError, UnreadableImageError):
                continue
            drawn.append(model.views_of(pixels, row, options.transforms, options.seed))
            kept.append(row)
        if drawn:
            images, transformed = (torch.stack(part) for part in zip(*drawn, strict=True))
            found.append(model.embed_images(images))
            flat = model.embed_transformed(transformed.flatten(0, 1))
            versions.append(flat.unflatten(0, (len(drawn), options.transforms)))
    bar.close()
    if len(kept) < 2:
        raise ValueError(
            f"--data = {folder}: expected two images or more that can be read, found {len(kept)}; "
            f"give a folder of images"
        )
    return torch.cat(found), torch.cat(versions), kept


def summary(results: dict[str, Any]) -> str:
    """A line for each model, for people."""
    lines = [
        f"l2 distances of unit vectors, {results['images']} images, "
        f"{results['transforms']} transforms of each:"
    ]
    for model in results["models"]:
        for key, what in (("heads", ""), ("bank", " against the memory bank")):
            if model[key]:
                same, other = model[key]["same"], model[key]["different"]
                lines.append(
                    f"  {model['name']}{what}: same image {same['mean']:.3f} ± {same['std']:.3f}, "
                    f"different images {other['mean']:.3f} ± {other['std']:.3f}"
                )
        lines.append(f"    compared: {model['representation']}")
        if model["bank_note"]:
            lines.append(f"    memory bank: {model['bank_note']}")
    return "\n".join(lines)


def _to_bank(
    model: PretextModel, transformed: Tensor, rows: list[int], images: int
) -> tuple[Distances | None, str | None]:
    """Distances of g(v_It) to the image's row and to other rows, or why there are none."""
    if model.bank is None:
        return None, "none in the checkpoint, or no head g to compare it with"
    if len(model.bank) != images:
        return None, (
            f"it has {len(model.bank)} rows and --data {images} images: give the images of the "
            f"pre-training"
        )
    own, other = model.bank[rows], model.bank[[*rows[1:], rows[0]]]
    pairs = (unit_distances(bank[:, None], transformed).flatten() for bank in (own, other))
    return Distances(*pairs), None


def _summaries(distances: Distances) -> dict[str, Any]:
    return {
        "same": summarize_distances(distances.same),
        "different": summarize_distances(distances.different),
    }


def _names(checkpoints: list[Path]) -> list[str]:
    """Distinct names: of the checkpoints' folders, with as many parents as needed."""
    parts = [checkpoint.resolve().with_suffix("").parts for checkpoint in checkpoints]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-1 - depth : -1]) or path[-1] for path in parts]
        if len(set(names)) == len(names):
            return names
    return ["/".join(path) for path in parts]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin invariance",
        description="Measure the distances between the unit-norm embeddings of images and of their "
        "transformed versions, as in Fig. 4 of the paper, beside those of different images.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--checkpoint", type=Path, nargs="+", required=True, help="one or more models")
    add("--data", type=Path, required=True, help="folder of images, such as IMAGENET/train")
    add("--out", type=Path, required=True, help="folder for invariance.json, .svg and .png")
    add("--images", type=int, default=1000, help="images, drawn at random from the folder")
    add("--transforms", type=int, default=4, help="transformed versions of each image")
    add("--seed", type=int, default=0, help="of images and transforms")
    add("--trust-pickle", action="store_true", help="as in pirl-plugin export")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", default=device, help="cpu, cuda or cuda:N")
    options = parser.parse_args(arguments)
    for name, least in (("images", 2), ("transforms", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} = {getattr(options, name)}: expected {least} or more")
    return options
