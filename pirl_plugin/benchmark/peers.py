"""VISSL's own PIRL pipeline and ours, each built by the host from a config of its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from pirl_plugin.settings import VISSL_PIRL, quoted
from pirl_plugin.vissl.composing import compose

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TRANSFORMS = ("jigsaw", "rotation", "rotation_jigsaw")
OUR_CONFIG = "config=pretrain/pirl/{}_8node"


def our_pipeline(folder: Path, transform: str) -> tuple[Any, Callable[..., Any]]:
    """Our data set and its collate function, as the transform's config sets them up.

    Args:
        folder: of images.
        transform: one of ``TRANSFORMS``.
    """
    config = compose(
        OUR_CONFIG.format(transform), f"config.DATA.TRAIN.DATA_PATHS=[{quoted(folder)}]"
    )
    return _built(config)


def vissl_pipeline(
    folder: Path, transform: str, source: str = "disk_folder"
) -> tuple[Any, Callable[..., Any]] | None:
    """VISSL's data set and collate function: its PIRL config's, or its parts' for the rotation.

    VISSL has no PIRL with rotation. The peer is two views of an image through the image transforms
    of its PIRL config, the second of them through its ``ImgRotatePil``. For rotation + jigsaw it
    has no parts: None.

    Args:
        folder: of images.
        transform: one of ``TRANSFORMS``.
        source: ``disk_folder``, which its PIRL config uses and which decodes each image twice, or
            ``disk_filelist``, which decodes it once.
    """
    if transform == "rotation_jigsaw":
        return None
    config = compose(
        f"config={VISSL_PIRL}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(folder)}]",
        "config.DATA.TRAIN.LABEL_PATHS=[]",
    )
    train = config.DATA.TRAIN
    if source == "disk_filelist":
        paths = sorted(str(path) for path in folder.glob("*/*"))
        train.DATA_PATHS = [str(folder / "images.npy")]
        np.save(train.DATA_PATHS[0], paths)
        train.DATA_SOURCES = [source]
    if transform == "rotation":
        _, *photometric, tensor, normalize = train.TRANSFORMS
        train.TRANSFORMS = [
            {"name": "ImgReplicatePil", "num_times": 2},
            {"name": "RandomResizedCrop", "size": 224},
            *photometric,
            {"name": "ImgRotatePil"},
            tensor,
            normalize,
        ]
        train.COLLATE_FUNCTION = "simclr_collator"
    dataset, collate = _built(config)
    for step in dataset.transform.transforms:
        if step.name == "ImgRotatePil":
            step.indices = {1}  # the second view; the host's YAML key for it raises
    return dataset, collate


def _built(config: Any) -> tuple[Any, Callable[..., Any]]:
    from vissl.data import build_dataset
    from vissl.data.collators import get_collator

    level = logging.root.level
    logging.root.setLevel(logging.WARNING)  # the host prints every transform it makes
    try:
        dataset = build_dataset(config, "TRAIN")
    finally:
        logging.root.setLevel(level)
    train = config.DATA.TRAIN
    return dataset, get_collator(train.COLLATE_FUNCTION, train.get("COLLATE_FUNCTION_PARAMS") or {})
