"""The pictures of the quickstart's report: loss, invariance, jigsaws, neighbours, map, classes."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cosine_similarity

from pirl_plugin import __version__
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.training_run import RUN_CONFIG, learning_rates, read_config
from pirl_plugin.evaluation.features import centre_crop
from pirl_plugin.evaluation.knn import nearest_neighbors
from pirl_plugin.evaluation.pretext_checkpoint import load_pretext_model
from pirl_plugin.evaluation.pretext_model import PretextModel
from pirl_plugin.images.decode import UnreadableImageError, decode_image
from pirl_plugin.images.read import read_file
from pirl_plugin.images.sources.paths import find_images
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.quickstart.features import Split, knn_by_class
from pirl_plugin.quickstart.page.figures import feature_map
from pirl_plugin.quickstart.page.monitor import read_monitor
from pirl_plugin.quickstart.page.page import FeatureMap, Jigsaw, Neighbors, Report, write_report
from pirl_plugin.utils.json_lines import read_json_lines
from pirl_plugin.views.random import image_generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pirl_plugin.quickstart.data import Data
    from pirl_plugin.quickstart.page.plots import Cosines

_SHOWN, _NEIGHBORS, _PICTURE = 6, 6, 144
_MAPPED, _THUMBNAIL = 300, 40
_COMPARED = 256  # images of the distributions of cosines


def write_quickstart_report(
    out: Path,
    data: Data,
    checkpoints: dict[str, Path],
    results: dict[str, Any],
    splits: tuple[Split, Split | None],
    command: str,
    drawn: bool,
) -> None:
    """Write ``report.html`` into ``out`` from a finished run.

    Args:
        out: the run's folder.
        data: the images.
        checkpoints: of ``random`` and ``pirl``.
        results: as in ``results.json``.
        splits: features of the training images, and of the test images where there are labels.
        command: what was typed.
        drawn: whether the images are drawn ones and not photos.
    """
    train, test = splits
    config = read_config(out / "pretrain" / RUN_CONFIG)
    model = load_pretext_model(checkpoints["pirl"])
    models = {"random": _untrained(model, checkpoints["random"], results["seed"]), "pirl": model}
    loss = config["LOSS"]["pirl_loss"]
    by_class = {}
    if test is not None:
        by_class = {name: knn_by_class(train, test, name)[1] for name in checkpoints}
    report = Report(
        title="PIRL quickstart",
        results=results,
        loss_curve=_loss_curve(out / "pretrain" / "stdout.json"),
        jigsaws=_jigsaws(data, results["seed"], model),
        neighbors=_neighbors(train, test),
        settings={"command": command, **_settings(data, config, out, test)},
        num_classes=data.num_classes if test is not None else None,
        num_test=len(test.paths) if test is not None else None,
        by_class=by_class,
        monitor=read_monitor(out / "pretrain" / "stdout.json"),
        cosines=_cosines(models, test or train, results["seed"]),
        feature_map=_map(test or train, test is not None, results["seed"]),
        num_negatives=loss["num_negatives"] if loss["estimator"] == "info_nce" else None,
        drawn=drawn,
    )
    write_report(out / "report.html", report)


def _settings(data: Data, config: dict[str, Any], out: Path, test: Split | None) -> dict[str, str]:
    loss, view = config["LOSS"]["pirl_loss"], config["DATA"]["TRAIN"]["TRANSFORMS"][0]
    network = config["MODEL"]["TRUNK"]["PIRL_RESNET"]
    written = (out / "pretrain" / RUN_CONFIG).relative_to(out)
    tested = f", {len(test.paths)} test images" if test is not None else ""
    versions = {"pirl_plugin": __version__}
    for package in ("torch", "vissl"):
        versions[package] = importlib.metadata.version(package)
    rate = config["OPTIMIZER"]["param_schedulers"]["lr"]
    return {
        "Data": f"{data.train.parent.name}/{data.train.name}, {data.num_train} images{tested}",
        "Network": f"ResNet-{network['DEPTH']}, width {network['WIDTH_MULTIPLIER']:g}",
        "Image size": f"{view['image_size']} px; nine patches of {view['patch_size']} px",
        "Loss": f"{loss['estimator']}, λ = {loss['lambda_invariance']:g}, "
        f"τ = {loss['temperature']:g}, N = {loss['num_negatives']:,}",
        "Optimiser": f"SGD, {learning_rates(rate)} ({rate['name']}), "
        f"batch {config['DATA']['TRAIN']['BATCHSIZE_PER_REPLICA']}",
        "Engine": f"VISSL, config=pretrain/pirl/quick_jigsaw (in full: {written})",
        "Evaluation": "frozen res5 features: VISSL's linear benchmark; kNN, k = 20, cosine",
        "Seed": str(config["SEED_VALUE"]),
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _loss_curve(log: Path) -> list[tuple[int, float]]:
    """(iteration, loss) from the host's log; a resumed run's later values win."""
    return sorted({int(e["iter"]): float(e["loss"]) for e in read_json_lines(log)}.items())


def _untrained(model: PretextModel, trunk: Path, seed: int) -> PretextModel:
    """The same network before training: its trunk, and heads drawn with the seed."""
    if model.f is None or model.g is None:
        raise ValueError(f"{trunk}: expected a pre-training with the heads f and g beside it")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        f, g = (_like(head) for head in (model.f, model.g))
    return PretextModel(load_trunk(trunk), f, g, model.views, "before training")


def _like(head: PIRLHead) -> PIRLHead:
    project = head.project
    if not isinstance(project, torch.nn.Linear):
        raise TypeError("expected the quickstart's linear heads")
    return PIRLHead(project.in_features, project.out_features, head.num_patches).eval()


def _cosines(models: dict[str, PretextModel], split: Split, seed: int) -> dict[str, Cosines]:
    """Cosines of f(v_I) with g(v_It) of the same image, and of one half the data set away.

    With BatchNorm's statistics of images and of patches apart, as the loss saw them.
    """
    chosen = [path for _, path in _spread(split.paths, _COMPARED)]
    if len(chosen) < 2:
        return {}
    found: dict[str, Cosines] = {}
    for name, model in models.items():
        drawn = [
            model.views_of(_pixels(split, path), row, 1, seed) for row, path in enumerate(chosen)
        ]
        images, versions = (torch.stack(part) for part in zip(*drawn, strict=True))
        own_model = model.with_own_statistics(images, versions[:, 0])
        image = torch.cat([own_model.embed_images(part) for part in images.split(64)])
        transformed = torch.cat(
            [own_model.embed_transformed(part) for part in versions[:, 0].split(64)]
        )
        other = transformed.roll(len(chosen) // 2, dims=0)
        cosines = (cosine_similarity(image, versions) for versions in (transformed, other))
        own, different = (values.tolist() for values in cosines)
        found[name] = (own, different)
    return found


def _jigsaws(data: Data, seed: int, model: PretextModel) -> list[Jigsaw]:
    """What the network got to see of a few images, by the settings of the run."""
    samples = []
    for row, path in _spread(list(find_images(str(data.train))), _SHOWN):
        try:
            pixels = decode_image(read_file(os.path.join(data.train, path)))
        except (OSError, UnreadableImageError):  # pre-training left it out, too
            continue
        drawn = model.views(pixels, image_generator(seed, 0, row))
        patches = [_hwc(patch) for patch in drawn["patches"]]
        samples.append((_hwc(pixels), _hwc(drawn["images"]), patches))
    return samples


def _neighbors(train: Split, test: Split | None) -> list[Neighbors]:
    """Nearest neighbours of a few images, with the pre-trained and the random trunk."""
    query = test or train
    rows = [row for row, _ in _spread(query.paths, _SHOWN)]
    labelled = test is not None
    found = {}
    for name in ("pirl", "random"):
        # Without test images the query is in the gallery, and is its own first neighbour.
        ranked = nearest_neighbors(query.features[name][rows], train.features[name], _NEIGHBORS + 1)
        ranked = ranked[:, :_NEIGHBORS] if labelled else ranked[:, 1:]
        found[name] = [
            [
                (_picture(train, train.paths[r], _PICTURE), train.classes[r] if labelled else "")
                for r in near.tolist()
            ]
            for near in ranked
        ]
    return [
        Neighbors(
            _picture(query, query.paths[row], _PICTURE),
            query.classes[row] if labelled else "",
            found["pirl"][i],
            found["random"][i],
        )
        for i, row in enumerate(rows)
    ]


def _map(split: Split, labelled: bool, seed: int) -> FeatureMap | None:
    """The map of some images by the pre-trained trunk's features; None of fewer than eight."""
    rows = [row for row, _ in _spread(split.paths, _MAPPED)]
    if len(rows) < 8:
        return None
    names = sorted({split.classes[row] for row in rows}) if labelled else []
    numbers = [names.index(split.classes[row]) if labelled else len(rows) for row in rows]
    thumbnails = [_picture(split, split.paths[row], _THUMBNAIL) for row in rows]
    picture = feature_map(split.features["pirl"][rows].numpy(), thumbnails, numbers, seed)
    return FeatureMap(picture, names, len(rows))


def _pixels(split: Split, path: str) -> torch.Tensor:
    return decode_image(read_file(str(split.folder / path)))


def _picture(split: Split, path: str, size: int) -> NDArray[np.uint8]:
    return _hwc(centre_crop(_pixels(split, path), size))


def _spread(items: list[str], count: int) -> list[tuple[int, str]]:
    """``count`` items with their positions, evenly spread, from the middle of each share."""
    count = min(count, len(items))
    rows = [(2 * i + 1) * len(items) // (2 * count) for i in range(count)]
    return [(row, items[row]) for row in rows]


def _hwc(image: torch.Tensor) -> NDArray[np.uint8]:
    return np.ascontiguousarray(image.permute(1, 2, 0).numpy())
