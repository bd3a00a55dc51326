"""Predicted classes on a page: least certain predictions, and disagreements with the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.evaluation.pictures import Group, Picture, PictureSection, ShownImages
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.system.text import counted, printable

_MOST_CLASSES = 20
_UNCERTAIN = 6  # pictures for each class
_DISAGREEMENTS = 48


@dataclass(frozen=True)
class Predictions:
    """Predicted classes for some of the shown images.

    Attributes:
        shown: N images.
        of_number: number among the N → predicted class, as text for a page, and its probability.
        classes: all classes that could have been predicted.
    """

    shown: ShownImages
    of_number: Mapping[int, tuple[str, float]]
    classes: Sequence[str]

    @classmethod
    def of_classifier(
        cls, shown: ShownImages, features: Tensor, classifier: Classifier
    ) -> Predictions:
        """Return a classifier's predictions for N images with features ``(N, D)``."""
        index, probability = classifier.predict(features)
        names = [classifier.classes[number] for number in index.tolist()]
        of_number = dict(enumerate(zip(names, probability.tolist(), strict=True)))
        return cls(shown, of_number, classifier.classes)

    @classmethod
    def of_votes(
        cls, shown: ShownImages, numbers: Sequence[int], nearest: Tensor, predicted: Tensor
    ) -> Predictions:
        """Return the classes that nearest images voted for, with their shares as probabilities.

        Args:
            shown: N images.
            numbers: M numbers among them.
            nearest: int64 ``(M, k)``, numbers of the images that voted.
            predicted: int64 ``(M,)``, the classes; −1 for most votes from unlabeled images.
        """
        shares = (shown.labels[nearest] == predicted[:, None]).float().mean(dim=1)
        classes = [*map(printable, shown.classes)]
        of_number = {}
        for number, label, share in zip(numbers, predicted.tolist(), shares.tolist(), strict=True):
            if label != NO_CLASS:
                of_number[number] = (classes[label], share)
        return cls(shown, of_number, classes)

    def disagreeing(self) -> list[int]:
        """Return the images with a label and another prediction, most probable first.

        Labels that cannot be predicted are left out.
        """
        numbers = []
        for number, (name, _) in self.of_number.items():
            label = self.shown.label(number)
            if label != name and label in self.classes:
                numbers.append(number)
        return sorted(numbers, key=lambda number: -self.of_number[number][1])

    def disagreements(self, title: str, text: str = "") -> PictureSection:
        """Return the most probable predictions that contradict labels."""
        pictures = [self._picture(number) for number in self.disagreeing()[:_DISAGREEMENTS]]
        return PictureSection(title, text, [Group("", pictures)] if pictures else [])

    def least_certain(self) -> PictureSection:
        """Return each predicted class's least certain images."""
        numbers_of: dict[str, list[int]] = {}
        for number, (name, _) in self.of_number.items():
            numbers_of.setdefault(name, []).append(number)
        most_frequent = sorted(numbers_of, key=lambda name: -len(numbers_of[name]))[:_MOST_CLASSES]
        groups = []
        for name in most_frequent:
            numbers = sorted(numbers_of[name], key=lambda number: self.of_number[number][1])
            pictures = [self._picture(number) for number in numbers[:_UNCERTAIN]]
            groups.append(Group(f"{name}: {counted(len(numbers), 'image')}", pictures))
        which = ""
        if len(numbers_of) > _MOST_CLASSES:
            which = f" These are the {_MOST_CLASSES} most frequent of {len(numbers_of):,} classes."
        text = f"Images by predicted class, the least certain prediction first.{which}"
        return PictureSection("Predicted classes", text, groups)

    def confusion(self) -> dict[str, list[int]]:
        """Return class → number of its images with each prediction, in the order of the classes."""
        counts = Counter(
            (self.shown.label(number), name) for number, (name, _) in self.of_number.items()
        )
        return {label: [counts[label, name] for name in self.classes] for label in self.classes}

    def _picture(self, number: int) -> Picture:
        name, probability = self.of_number[number]
        return self.shown.picture(number, f"predicted: {name}, {100 * probability:.0f} %")
