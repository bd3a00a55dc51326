"""What all runs of a comparison were made with, as ``claims.json`` says it."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, TypedDict

from pirl_plugin.data.sources.paths import find_images
from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.plan import sweep_epochs
from pirl_plugin.experiments.claims.provenance import hardware, precision, versions
from pirl_plugin.experiments.claims.scales import autocast, scale_with

if TYPE_CHECKING:
    from pirl_plugin.experiments.claims.claims_file import DataFacts, Setting
    from pirl_plugin.experiments.claims.scales import Scale
    from pirl_plugin.experiments.data import Data


def new_setting(
    scale: str, data: Data, epochs: int, step: int, threads: int, recipe: str = "paper"
) -> Setting:
    """What all runs of a comparison were made with.

    Args:
        scale: name of it.
        data: the images.
        epochs: of the main comparison.
        step: epochs between two evaluations.
        threads: of a run.
        recipe: name of the loss's.
    """
    size = scale_with(scale, recipe)
    cpu = size.cpu_time
    return {
        "scale": scale,
        "recipe": recipe,
        "network": {
            "model": size.model,
            "image_size": size.image_size,
            "patch_size": size.patch_size,
            "patches_crop_size": size.patches_crop_size,
            "batch": size.batch,
            "learning_rate": size.rate,
            "negatives": size.negatives,
        },
        "data": _fingerprint(data),
        "images_seen": epochs * data.num_train,
        "epochs": epochs,
        "evaluated_every": step,
        "sweep_epochs": sweep_epochs(epochs),
        "seconds": "pre-training only: "
        + (
            f"CPU seconds, user and system, of the run's processes with {threads} thread(s); other "
            "load on the machine changes wall_seconds several times over, and these, by way of "
            "shared caches and cores, by up to a half"
            if cpu
            else "wall-clock seconds of the run's process, start and checkpoints included"
        ),
        "hardware": hardware(threads, on_gpu=not cpu),
        "precision": precision(autocast(size)),
        "versions": versions(),
        **descriptions(size),
    }


class Descriptions(TypedDict):
    """What a setting says to people, whatever made its runs."""

    about: str
    methods: dict[str, str]
    linear_top1: str
    knn_top1: str


def descriptions(scale: Scale) -> Descriptions:
    """Labels of the methods, and what the columns of a comparison are."""
    return {
        "about": f"{scale.about}; PIRL with {scale.recipe.about}",
        "methods": {name: method.label for name, method in METHODS.items()},
        "linear_top1": "percent; the host's linear benchmark (config=benchmark/pirl/quick_linear "
        f"+config/pirl/linear={scale.model}): of linear_by_layer the pooled res5, res5avg where it "
        "is measured; linear_best_top1 is that of the run's best layer, where tables and claims "
        "take one layer for all seeds of a method",
        "knn_top1": f"percent; k = 20, pooled res5 features at {scale.image_size} px",
    }


def _fingerprint(data: Data) -> DataFacts:
    """Counts, a digest of the names of all images, and the bytes of the training images.

    The same images in several sizes often have the same names.
    """
    digest = hashlib.sha256()
    paths = {}
    for name, split in (("train", data.train), ("val", data.val)):
        paths[name] = list(find_images(str(split)))
        digest.update(os.fsencode("\n".join([name, *paths[name]])))
    files = (data.train / path for path in paths["train"])
    return {
        "name": data.train.parent.name,
        "classes": data.num_classes,
        "train_images": len(paths["train"]),
        "val_images": len(paths["val"]),
        "digest": digest.hexdigest()[:16],
        "train_bytes": sum(file.stat().st_size for file in files if file.is_file()),
    }
