"""The page of ``embed``: a map, near duplicates, predictions, and disagreements with labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pirl_plugin.evaluation.image_map import ImageMap, draw_map
from pirl_plugin.evaluation.knn import vote
from pirl_plugin.evaluation.page import TEMPLATE, Report
from pirl_plugin.evaluation.pictures import PageImages
from pirl_plugin.system.text import counted


def write_report(
    report: Report, images: PageImages, features: Tensor, digests: Tensor, layer: str
) -> None:
    """Write the page.

    Args:
        report: the page.
        images: N readable images, with predictions if the checkpoint has a classifier.
        features: float32 ``(N, D)``.
        digests: int64 ``(N,)``, equal for images with equal pixels.
        layer: the features' layer.
    """
    drawn = draw_map(images, features)
    has_classifier = len(images.predictable) > 0
    if not has_classifier and len(drawn.numbers) > 1:
        images = _classify_by_neighbors(images, drawn)
    report.write(
        TEMPLATE.with_name("embed.html.j2"),
        title=counted(len(images.rows), "image"),
        images=images,
        map=drawn,
        has_classifier=has_classifier,
        digests=digests,
        layer=layer,
        num_dimensions=features.shape[1],
    )


def _classify_by_neighbors(images: PageImages, drawn: ImageMap) -> PageImages:
    """Let the nearest images on the map vote; their shares become probabilities."""
    names, indices = np.unique(images.labels[drawn.numbers], return_inverse=True)
    labels = torch.from_numpy(indices)
    predicted = vote(drawn.nearest, drawn.cosines, labels)
    shares = (labels[drawn.nearest] == predicted[:, None]).float().mean(dim=1)
    return images.with_predictions(drawn.numbers, predicted, shares, names.tolist())
