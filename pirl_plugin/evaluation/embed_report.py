"""The page of ``embed``: a map, near duplicates, predictions, and disagreements with labels."""

from __future__ import annotations

import torch
from torch import Tensor

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.evaluation.image_map import draw_map, near_duplicates, take_images
from pirl_plugin.evaluation.knn import vote
from pirl_plugin.evaluation.pictures import ShownImages
from pirl_plugin.evaluation.predictions import Predictions
from pirl_plugin.evaluation.report import Report
from pirl_plugin.system.text import counted

_VOTES = 20  # nearest images that vote for a class


def write_report(
    report: Report,
    shown: ShownImages,
    features: Tensor,
    digests: Tensor,
    layer: str,
    classifier: Classifier | None,
) -> None:
    """Write the page.

    Args:
        report: the page.
        shown: N readable images.
        features: float32 ``(N, D)``.
        digests: int64 ``(N,)``, equal for images with equal pixels.
        layer: the features' layer.
        classifier: the checkpoint's classifier; None if there is none.
    """
    mapped = take_images(shown, features, _VOTES)
    sections = [near_duplicates(mapped, digests)]
    predictions = None
    if classifier is not None:
        predictions = Predictions.of_classifier(shown, features, classifier)
        title = "Predictions that contradict the labels"
        sections.insert(0, predictions.disagreements(title, "The most probable ones first."))
        sections.append(predictions.least_certain())
    elif shown.classes and len(mapped.numbers) > 1:
        numbers = torch.tensor(mapped.numbers)
        predicted = vote(mapped.nearest, mapped.cosines, shown.labels[numbers])
        predictions = Predictions.of_votes(
            shown, mapped.numbers, numbers[mapped.nearest], predicted
        )
        text = (
            f"The {mapped.nearest.shape[1]} nearest images vote for a class, and percentages are "
            f"their shares. The clearest votes for another class than the image's own come first."
        )
        sections.insert(0, predictions.disagreements("Images unlike their class", text))
    report.write(
        counted(len(shown.rows), "image"),
        _result(shown, predictions, classifier is not None),
        shown.folder,
        {
            "Images": shown.source.summary(),
            "Features": f"{layer}, {features.shape[1]:,} dimensions",
        },
        map=draw_map(mapped, predictions),
        pictures=sections,
    )


def _result(shown: ShownImages, predictions: Predictions | None, classified: bool) -> str:
    """Return the page's first sentence."""
    count = counted(len(shown.rows), "image")
    if predictions is None:
        return f"{count}, arranged by similarity."
    num_compared = sum(
        shown.label(number) in predictions.classes for number in predictions.of_number
    )
    num_disagreeing = len(predictions.disagreeing())
    if classified and num_compared:
        share = 100 * num_disagreeing / num_compared
        return (
            f"The predicted class differs from the label for {num_disagreeing:,} of "
            f"{num_compared:,} labeled images ({share:.1f} %)."
        )
    if classified:
        unsure = sum(probability < 0.5 for _, probability in predictions.of_number.values())
        return f"The classifier's probability is below 50 % for {unsure:,} of {count}."
    return (
        f"For {num_disagreeing:,} of {num_compared:,} labeled images, most of the nearest images "
        f"have another class."
    )
