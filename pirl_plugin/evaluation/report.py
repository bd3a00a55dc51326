"""A command's ``--report``: checked before the work, written after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pirl_plugin.evaluation.page import TEMPLATE, write_page
from pirl_plugin.evaluation.pictures import Display, choose_display
from pirl_plugin.images.groups import require_scikit_learn
from pirl_plugin.images.source import ImageSource
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked_file


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

    def write(self, template: Path = TEMPLATE, **values: Any) -> None:
        """Write the page.

        Args:
            template: see :func:`~pirl_plugin.evaluation.page.write_page`.
            **values: what it shows. An evaluation's page needs ``accuracy``, the result, and
                ``measured``, :class:`~pirl_plugin.evaluation.labeled_features.LabeledFeatures`.
        """
        with locked_file(self.path, "--report"):
            write_page(self.path, template, report=self, **values)
        print(f"Report: {self.path}")


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
