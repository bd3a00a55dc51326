"""Load the network that a command's options name, and report its accuracy."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.evaluation.features import config_for
from pirl_plugin.evaluation.knn import chance_top1
from pirl_plugin.evaluation.logistic import require_scikit_learn
from pirl_plugin.evaluation.near_equal import count_near_equal
from pirl_plugin.evaluation.page import Accuracy, Chart, Verdict, write_page
from pirl_plugin.evaluation.pictures import Display, ShownImages, choose_display
from pirl_plugin.images.classes import NO_CLASS
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.labeled import LabeledImages, open_labeled, save_split
from pirl_plugin.images.source import ImageSource, content_stamp
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.arguments import usable_device, weights_name
from pirl_plugin.system.console import put
from pirl_plugin.system.failures import Refused, check_name
from pirl_plugin.system.files import claim_folder, locked, locked_file
from pirl_plugin.system.text import counted, printable

_LEAST_NEAR_EQUAL = 0.1  # of the test images; fewer occur without bursts


def load_trunk_and_images(options: argparse.Namespace) -> tuple[AnyTrunk, LabeledImages]:
    """Open labeled images, load the network, and print both; write held-out images to ``--out``.

    Args:
        options: options from ``arguments.WEIGHTS``, ``NETWORK``, ``LABELED_DATA``, ``IMAGES`` and
            ``COMPUTING``, and ``out``.

    Raises:
        Refused: the ``--out`` folder belongs to another command, or to other images.
    """
    images = open_labeled(options.data, options.train, options.val, chosen_columns(options))
    trunk = load_network(options, images.train)
    if options.out is not None:
        with locked(options.out, "--out"):
            held_out_of = None if images.held_out_of is None else str(images.held_out_of.resolve())
            claim_folder(options.out, {"command": options.command, "data": held_out_of})
            images = save_split(images, options.out)
    print(images.summary(), flush=True)
    if images.held_out_of is not None and images.train.groups() is None:
        images = _compare(images, trunk, options)
    return trunk, images


def _compare(images: LabeledImages, trunk: AnyTrunk, options: argparse.Namespace) -> LabeledImages:
    """Count test images that look nearly the same as a training image, and print many of them."""
    config = trunk.network_config
    near, total = count_near_equal(images, config, options.batch, options.workers)
    if near >= _LEAST_NEAR_EQUAL * total:
        put(
            f"{near:,} of {total:,} test images look nearly the same as some training image, so "
            f"accuracies may be too high. If images belong together (bursts, videos, patients), "
            f"name their groups: --pattern '(?P<group>…)…'\n"
        )
    return replace(images, near_equal={"images": near, "of": total})


def chosen_columns(options: argparse.Namespace) -> Columns:
    """Return the columns that a command's options name, or the pattern."""
    group = getattr(options, "group_column", None)  # not an option of embed
    return Columns(options.image_column, options.label_column, group, options.pattern)


def load_network(options: argparse.Namespace, source: ImageSource) -> AnyTrunk:
    """Load the trunk that a command's options name; print the network and the images it expects.

    A network from ``--timm`` gets the images' number of channels; timm adapts the first layer.

    Args:
        options: options from ``arguments.WEIGHTS``, ``NETWORK``, ``IMAGES`` and ``COMPUTING``.
        source: the images; the training images if there are others.

    Raises:
        Refused: timm could not download the published weights.
    """
    device = usable_device(options.device)
    timm_options = dict(options.timm_option)
    channels, _ = source.type_to_read(options.rgb)
    if options.timm is not None and channels != 3:
        timm_options.setdefault("in_chans", channels)
    try:
        trunk = load_trunk(
            options.checkpoint,
            prefix=options.trunk,
            timm=options.timm,
            timm_options=timm_options,
        )
    except OSError as error:
        if options.checkpoint is not None or error.errno:  # a file, or the cache on a full disk
            raise
        from timm import get_pretrained_cfg

        weights: Any = get_pretrained_cfg(options.timm)
        raise Refused(
            f"timm could not download model.safetensors from {weights.hf_hub_id} on the "
            f"Hugging Face Hub. Connect to the internet; or download this file elsewhere, and "
            f"pass --checkpoint FILE --timm {weights.architecture}.{weights.tag}."
        ) from error
    names = ("rgb", "size", "mean", "std", "nodata")
    values = {name: getattr(options, name) for name in names}
    config = config_for(trunk, source, "option", **values)
    trunk.network_config = config
    print(f"network: {config.name}, {trunk.num_features:,} features")
    print(f"input: {config}", flush=True)
    if config.defaults:
        flags = ", ".join(f"--{name}" for name in config.defaults)
        print(f"The weights record no image settings. To change a default: {flags}", flush=True)
    return trunk.to(device)


def identify_features(options: argparse.Namespace, trunk: AnyTrunk, layer: str) -> dict[str, Any]:
    """Return JSON that identifies a network's features for any images."""
    checkpoint = [weights_name(options)]
    if options.checkpoint is not None:
        checkpoint.append(content_stamp(options.checkpoint))
    config = trunk.network_config
    nodata = {} if config.nodata is None else {"nodata": config.nodata}
    return {
        "checkpoint": checkpoint,
        "network": {"trunk": options.trunk, "timm": [options.timm, *options.timm_option]},
        "layer": layer,
        "image size": config.size,
        "mean and std": [*config.mean, *config.std],
        **nodata,
    }


def prepare_report(
    options: argparse.Namespace, source: ImageSource, trunk: AnyTrunk
) -> Display | None:
    """Check what ``--report`` needs, and return its pictures' colors; None without ``--report``.

    Args:
        options: options from ``arguments.REPORT``.
        source: the images; the training images if there are others.
        trunk: the network, which records the images' type.

    Raises:
        MissingPackage: scikit-learn is not installed.
        Refused: ``--show`` names an unknown channel.
    """
    if options.report is None:
        return None
    require_scikit_learn()
    reading = trunk.network_config.reading
    numbers = [*map(str, range(reading.pixel_type.channels))]
    names = list(source.channel_names)
    channels = None
    if options.show is not None:
        for channel in options.show:
            check_name("--show", channel, [*names, *numbers])
        channels = [names.index(c) if c in names else int(c) for c in options.show]
    return choose_display(source, reading, channels)


def report_accuracies(
    options: argparse.Namespace,
    title: str,
    trunk: AnyTrunk,
    images: LabeledImages,
    accuracies: Mapping[str, float],
    num_train: int,
    num_tested: int,
    result: str,
    shown: ShownImages,
    charts: Sequence[Chart] = (),
    **sections: Any,
) -> None:
    """Write a command's ``--report``: accuracies, image counts, and charts.

    Args:
        options: the command's options.
        title: the page's title.
        trunk: the network.
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
    text = (
        f"{main.percent:.1f} ± {main.error:.1f} % of {counted(num_tested, 'test image')} are "
        f"classified correctly."
    )
    with locked_file(options.report, "--report"):
        write_page(
            options.report,
            title,
            verdict=Verdict("open", text),
            colors=shown.display.caption,
            charts=[Chart("", bars), *charts],
            chance=chance_top1(of_train, of_test),
            settings={
                "Checkpoint": weights_name(options),
                "Training images": f"{num_train:,} in {images.train.path}",
                "Test images": f"{num_tested:,} in {images.test.path}",
                "File names": f"relative to {printable(shown.folder)}",
                "Images": trunk.network_config,
            },
            **sections,
        )
    print(f"Report: {options.report}")
