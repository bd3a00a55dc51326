"""What features are computed from: one value made from a command's options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.evaluation.crops import config_for
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.labeled import LabeledImages, open_labeled, save_split
from pirl_plugin.images.source import ImageSource, content_stamp
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.arguments import usable_device
from pirl_plugin.system.failures import Refused, check_name
from pirl_plugin.system.files import claim_folder

_COMPUTING = ("batch", "workers", "device")


@dataclass(frozen=True)
class Request:
    """The options that features are computed from, under their names on the command line.

    A command without an option leaves the default. A new option in ``arguments.WEIGHTS``,
    ``LABELED_DATA``, ``LAYER`` or ``FEATURES`` needs a field here.
    """

    checkpoint: Path | None
    timm: str | None
    timm_option: Sequence[tuple[str, Any]]
    trunk: str | None
    data: Path | None
    image_column: str | None
    label_column: str | None
    pattern: str | None
    rgb: bool
    nodata: float | None
    size: int | None
    mean: Sequence[float] | None
    std: Sequence[float] | None
    batch: int
    workers: int | None
    device: str
    train: Path | None = None
    val: Path | None = None
    group_column: str | None = None
    layer: str | None = None

    @classmethod
    def of_options(cls, options: argparse.Namespace) -> Request:
        """Take the fields from a command's options."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in vars(options).items() if name in names})

    @property
    def columns(self) -> Columns:
        """The columns in tables and data sets, or the pattern."""
        return Columns(self.image_column, self.label_column, self.group_column, self.pattern)

    @property
    def weights(self) -> str:
        """The absolute path to the checkpoint, or the name of published weights."""
        if self.checkpoint is None:
            return f"timm's published weights for {self.timm}"
        return str(self.checkpoint.resolve())

    def identity(self, free: Sequence[str] = ()) -> dict[str, Any]:
        """Return JSON that identifies the results: fields except free ones and how to compute."""
        values = {}
        for name, value in asdict(self).items():
            if name not in (*_COMPUTING, *free):
                values[name] = str(value.resolve()) if isinstance(value, Path) else value
        return values

    def identify_features(self, trunk: AnyTrunk, layer: str) -> dict[str, Any]:
        """Return JSON that identifies the loaded network's features for any images."""
        checkpoint = [self.weights]
        if self.checkpoint is not None:
            checkpoint.append(content_stamp(self.checkpoint))
        config = trunk.network_config
        return {
            "checkpoint": checkpoint,
            "network": {"trunk": self.trunk, "timm": [self.timm, *self.timm_option]},
            "layer": layer,
            "image size": config.size,
            "mean and std": [*config.mean, *config.std],
            "nodata": config.nodata,
            "rgb": config.rgb,
        }

    def open_labeled(
        self, command: str, out: Path | None, free: Sequence[str] = ()
    ) -> tuple[AnyTrunk, LabeledImages]:
        """Open labeled images, load the network, and print both; write held-out images to ``out``.

        Args:
            command: the command's name.
            out: the locked output folder, which then belongs to this request.
            free: fields that may differ from those of an earlier command in this folder.

        Raises:
            Refused: ``out`` belongs to another command, or to another request.
        """
        images = open_labeled(self.data, self.train, self.val, self.columns)
        trunk = self.load_network(images.train)
        if out is not None:
            claim_folder(out, {"command": command, **self.identity(free)})
            images = save_split(images, out)
        print(images.summary(), flush=True)
        return trunk, images

    def load_network(self, source: ImageSource) -> AnyTrunk:
        """Load the trunk; print the network and the images it expects.

        A network from ``--timm`` gets the images' number of channels; timm adapts the first layer.

        Args:
            source: the images; the training images if there are others.

        Raises:
            ValueError: the network does not have the layer.
            Refused: timm could not download the published weights.
        """
        device = usable_device(self.device)
        timm_options = dict(self.timm_option)
        channels, _ = source.type_to_read(self.rgb)
        if self.timm is not None and channels != 3:
            timm_options.setdefault("in_chans", channels)
        try:
            trunk = load_trunk(
                self.checkpoint, prefix=self.trunk, timm=self.timm, timm_options=timm_options
            )
        except OSError as error:
            if self.checkpoint is not None or error.errno:  # a file, or the cache on a full disk
                raise
            from timm import get_pretrained_cfg

            weights: Any = get_pretrained_cfg(str(self.timm))
            raise Refused(
                f"timm could not download model.safetensors from {weights.hf_hub_id} on the "
                f"Hugging Face Hub. Connect to the internet; or download this file elsewhere, and "
                f"pass --checkpoint FILE --timm {weights.architecture}.{weights.tag}."
            ) from error
        config = config_for(
            trunk,
            source,
            "option",
            rgb=self.rgb,
            size=self.size,
            mean=self.mean,
            std=self.std,
            nodata=self.nodata,
        )
        trunk.network_config = config
        print(f"network: {config.name}, {trunk.num_features:,} features")
        print(f"input: {config}", flush=True)
        if config.defaults:
            flags = ", ".join(f"--{name}" for name in config.defaults)
            print(f"The weights record no image settings. To change a default: {flags}", flush=True)
        if self.layer is not None:
            check_name("--layer", self.layer, trunk.layers)
        return trunk.to(device)
