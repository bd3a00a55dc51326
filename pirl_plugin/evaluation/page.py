"""The page for all reports: a self-contained HTML file.

``page.html.j2`` has the text; ``page.css`` and ``page.js`` become parts of the file.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pirl_plugin.evaluation.pictures import Display, choose_display
from pirl_plugin.images.groups import require_scikit_learn
from pirl_plugin.images.source import ImageSource
from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import check_name
from pirl_plugin.system.files import locked_file, write_text
from pirl_plugin.system.text import counted, printable

TEMPLATE = Path(__file__).with_name("page.html.j2")
"""The template for pages; others in its folder, or elsewhere, extend it."""
# Nothing is loaded, and only the page's own script runs, whatever a file's name is.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"


@dataclass(frozen=True)
class Accuracy:
    """A measured accuracy.

    Attributes:
        name: what was measured, such as a layer.
        percent: top-1, 0 to 100.
        count: number of test images.
        is_reference: whether it is only a comparison, such as an untrained network.
    """

    name: str
    percent: float
    count: int
    is_reference: bool = False

    @property
    def error(self) -> float:
        """Half the width of the 95 % interval, in percent.

        Normal approximation, with two correct and two wrong predictions added, because it would
        otherwise be 0 if all are correct (Agresti and Coull 1998).

        Example:
            >>> round(Accuracy("kNN", 30.0, 400).error, 2)  # 122 of 404: 196 √(0.302 · 0.698 / 404)
            4.48
        """
        count = self.count + 4
        share = (self.percent / 100 * self.count + 2) / count
        return 196 * math.sqrt(share * (1 - share) / count)


def write_page(path: Path, template: Path = TEMPLATE, **values: Any) -> None:
    """Write a page.

    Args:
        path: the HTML file.
        template: a template that extends ``page.html.j2``, or that template itself.
        **values: what the template shows. All pages have ``title`` and ``images``,
            :class:`~pirl_plugin.evaluation.pictures.PageImages`, and may have:

            - ``introduction``: a paragraph.
            - ``charts``: title → accuracies, and ``measured``,
              :class:`~pirl_plugin.evaluation.labeled_features.LabeledFeatures`.
            - ``map``: :class:`~pirl_plugin.evaluation.image_map.ImageMap`.
            - ``confusion``: class → number of test images with each prediction.
            - ``commands``: purpose → command, for the next steps.

            A template names the others.
    """
    from jinja2 import Environment, FileSystemLoader  # torch requires jinja2

    script = TEMPLATE.with_name("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    folders = FileSystemLoader([template.parent, TEMPLATE.parent])
    pages = Environment(loader=folders, autoescape=True, trim_blocks=True)
    pages.filters |= {"counted": counted, "printable": printable}
    html = pages.get_template(template.name).render(
        policy=f"{_POLICY}; script-src 'sha256-{digest}'",
        style=TEMPLATE.with_name("page.css").read_text(encoding="utf-8"),
        script=script,
        **values,
    )
    write_text(path, html)


@dataclass(frozen=True)
class Report:
    """A command's ``--report``: checked before the work, written after it.

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
            template: see :func:`write_page`.
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
