"""Store features on disk while they are computed, and read and write ``NAME.npz`` for ``embed``.

``NAME.npz`` holds, for the N readable images: ``features`` float32 (N, D), ``files`` (N,),
``digests`` int64 (N,), equal for images with equal pixels, and if known, ``labels`` (N,) and
``classes`` (class names). If the checkpoint has a classifier, it also holds ``predicted`` (N,),
class names, and ``probability`` float32 (N,). ``unreadable`` names the other images.
For ``--nearest``, ``paths`` and ``stamps`` (N,) are the files' paths, sizes and times.
``numpy.load`` reads the file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pirl_plugin.evaluation.features import Batch
from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.comparison import differences
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write, digest_of, remove

OWN_FILE = "Choose another file name, or delete it."
"""What to do if a command's own output file has other features."""


def store_batches(
    folder: Path,
    identity: Mapping[str, Any],
    count: int,
    compute: Callable[[range], Iterator[Batch]],
) -> Iterator[Batch]:
    """Yield batches from a folder, then compute the others, and store each before it is yielded.

    Args:
        folder: the folder, which is created. If no image is readable, it is removed at the end.
        identity: JSON that identifies the features.
        count: number of images.
        compute: computes the features, float32 ``(R, D)``, for a range of rows.

    Raises:
        Refused: the folder has other features.
    """
    if folder.is_symlink():  # someone else may have planted it
        remove(folder)
    row = 0
    is_any_readable = False
    while (part := folder / f"{row}.npz").exists():  # named after its first image
        _, batch = read_features(part, identity, OWN_FILE)
        yield batch
        row += len(batch.readable)
        is_any_readable |= len(batch.digests) > 0
    if row < count:
        for batch in compute(range(row, count)):
            write_features(folder / f"{row}.npz", identity, batch, {})
            yield batch
            row += len(batch.readable)
            is_any_readable |= len(batch.digests) > 0
    if not is_any_readable:
        remove(folder)


def write_features(
    file: Path, identity: Mapping[str, Any], batch: Batch, arrays: Mapping[str, Any]
) -> None:
    """Write one layer's features and their identity.

    Args:
        file: ``.npz``.
        identity: JSON that identifies the features.
        batch: the features.
        arrays: other arrays for the file.
    """
    progress = {
        "identity": identity,
        "done": len(batch.readable),
        "unreadable": (~batch.readable).nonzero()[:, 0].tolist(),
    }
    (features,) = batch.features
    with atomic_write(file) as opened:
        np.savez(
            opened,
            **arrays,
            features=features.float().cpu().numpy(),
            digests=batch.digests.numpy(),
            progress=np.array(json.dumps(progress)),
        )


def read_features(
    file: Path, identity: Mapping[str, Any], remedy: str
) -> tuple[dict[str, Any], Batch]:
    """Read features and their identity.

    Args:
        file: ``.npz``, from :func:`write_features`.
        identity: JSON that identifies the required features.
        remedy: what to do about other features, as a sentence.

    Raises:
        Refused: the file is damaged, another program wrote it, or it has features for other images,
            or from another network or layer.
    """
    try:
        with np.load(file) as content:
            progress = json.loads(str(content["progress"]))
            features = torch.from_numpy(content["features"])
            digests = torch.from_numpy(content["digests"])
        recorded = progress["identity"]
        readable = torch.ones(progress["done"], dtype=torch.bool)
        readable[progress["unreadable"]] = False
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise Refused(
            f"{file} is damaged, or another program or version wrote it. {remedy}"
        ) from error
    required = json.loads(json.dumps(identity))
    differs = differences(required, {key: recorded.get(key) for key in required})
    if differs:
        keys = " and ".join(dict.fromkeys(key.partition(".")[0] for key in differs))
        raise Refused(f"{file} was computed for a different {keys}. {remedy}")
    return recorded, Batch([features], readable, digests)


def identify_images(source: ImageSource) -> dict[str, Any]:
    """Return JSON that identifies a source's images and labels."""
    names, content = source.fingerprint()
    labels = ""
    with suppress(NoLabels):
        labels = digest_of([*source.classes, *map(str, source.labels())])
    return {"list of images": names, "version of the images or labels": [content, labels]}
