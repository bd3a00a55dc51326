"""HTML reports: one file that loads nothing from outside.

A report is a template that extends ``page.html.j2``, which has the frame and the style of all
reports; ``parts.html.j2`` has what several of them show.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image
from torch import Tensor

from pirl_plugin.evaluation.features import centre_crop
from pirl_plugin.system.files import write_text

_PICTURE = 112  # side of a small picture, pixels


def write_page(path: Path, template: Path, **values: object) -> None:
    """Fill a template and write the page.

    Args:
        path: the HTML file.
        template: a template that extends ``page.html.j2``.
        **values: values of the template's variables, ``title`` among them.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # torch requires jinja2

    pages = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    write_text(path, pages.get_template(template.name).render(values))


def picture(image: Tensor) -> str:
    """Return the ``data:`` address of an image uint8 ``(3, H, W)``, as a PNG."""
    stream = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def small_picture(image: Tensor) -> str:
    """Return the ``data:`` address of the centre of an image uint8 ``(3, H, W)``."""
    return picture(centre_crop(image, _PICTURE))
