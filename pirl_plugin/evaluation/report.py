"""A command's ``--report``: what all pages have in common, and the page of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pirl_plugin.evaluation.knn import chance_top1
from pirl_plugin.evaluation.logistic import require_scikit_learn
from pirl_plugin.evaluation.page import Accuracy, Chart, Verdict, write_page
from pirl_plugin.evaluation.pictures import Display, ShownImages, choose_display
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.labeled import LabeledImages
from pirl_plugin.images.source import ImageSource
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked_file
from pirl_plugin.system.text import counted, printable


@dataclass(frozen=True)
class Report:
    """A page to write.

    Attributes:
        path: the HTML file.
        weights: where the network's weights are from.
        config: the images that the network expects.
        display: the pictures' colors.
    """

    path: Path
    weights: str
    config: NetworkConfig
    display: Display

    def write(
        self, title: str, result: str, folder: str, settings: Mapping[str, str], **sections: Any
    ) -> None:
        """Write the page.

        Args:
            title: the page's title.
            result: the first sentence.
            folder: folder that file names are relative to.
            settings: name → value, for the last table.
            **sections: more arguments for :func:`~pirl_plugin.evaluation.page.write_page`.
        """
        with locked_file(self.path, "--report"):
            write_page(
                self.path,
                title,
                verdict=Verdict("open", result),
                colors=self.display.caption,
                settings={
                    "Checkpoint": self.weights,
                    **settings,
                    "File names": f"relative to {printable(folder)}",
                    "Input": self.config,
                },
                **sections,
            )
        print(f"Report: {self.path}")

    def write_accuracies(
        self,
        title: str,
        images: LabeledImages,
        accuracies: Mapping[str, float],
        num_train: int,
        num_tested: int,
        result: str,
        shown: ShownImages,
        charts: Sequence[Chart] = (),
        **sections: Any,
    ) -> None:
        """Write a page with accuracies, image counts, and charts.

        Args:
            title: the page's title.
            images: training and test images.
            accuracies: name → top-1, percent; for a comparison, the name begins with "untrained".
            num_train: number of labeled, readable training images.
            num_tested: number of labeled, readable test images.
            result: the name of the accuracy in the first sentence.
            shown: the images in pictures.
            charts: additional charts.
            **sections: more arguments for :func:`~pirl_plugin.evaluation.page.write_page`.
        """
        of_train, of_test = (
            torch.from_numpy(labels[labels != NO_CLASS])
            for labels in (images.train_labels, images.test_labels)
        )
        bars = [
            Accuracy(name, top1, num_tested, name.startswith("untrained"))
            for name, top1 in accuracies.items()
        ]
        main = bars[list(accuracies).index(result)]
        self.write(
            title,
            f"{main.percent:.1f} ± {main.error:.1f} % of {counted(num_tested, 'test image')} are "
            f"classified correctly.",
            shown.folder,
            {
                "Training images": f"{num_train:,} in {images.train.path}",
                "Test images": f"{num_tested:,} in {images.test.path}",
            },
            charts=[Chart("", bars), *charts],
            chance=chance_top1(of_train, of_test),
            **sections,
        )


def open_report(
    path: Path | None,
    show: Sequence[str] | None,
    source: ImageSource,
    weights: str,
    trunk: AnyTrunk,
) -> Report | None:
    """Check what ``--report`` needs, and choose its pictures' colors; None without ``--report``.

    Args:
        path: the HTML file.
        show: channels in red, green and blue; None: the default.
        source: the images; the training images if there are others.
        weights: where the network's weights are from.
        trunk: the network, which records the images it expects.

    Raises:
        MissingPackage: scikit-learn is not installed.
        Refused: ``--show`` names an unknown channel.
    """
    if path is None:
        return None
    require_scikit_learn()
    config = trunk.network_config
    channels = None
    if show is not None:
        numbers = [*map(str, range(config.channels))]
        names = list(source.channel_names)
        for channel in show:
            check_name("--show", channel, [*names, *numbers])
        channels = [names.index(c) if c in names else int(c) for c in show]
    return Report(path, weights, config, choose_display(source, config.reading, channels))
