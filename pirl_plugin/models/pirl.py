"""PIRL in one module: trunk, heads, loss and memory bank, for a short training loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from pirl_plugin.images.image_dataset import ImageDataset, collate_views
from pirl_plugin.images.reading import RGB, PixelType, Reading
from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.models.network_config import UNKNOWN, NetworkConfig, network_config_of
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.models.trunks import adapt_channels, feature_width, float_dtype, pooled_features
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.ranks import rank, world_size
from pirl_plugin.views.base import Views


class PIRL(nn.Module):
    """A trunk together with PIRL's heads, loss and memory bank.

    ``model(batch)`` returns the loss for a batch of views. Call :meth:`update` after the
    optimizer's step. There is a head f for the view ``images``, and a head g for each other view in
    ``data``. Without other views, this is NPID.

    Views are moved to the model's device and normalized with the mean and standard deviation in the
    trunk's record, if it is for the same channels and dtype. Otherwise, these are ImageNet's for
    RGB in uint8, and measured on ``data`` for other images. Float views from a function of your own
    are used as they are. Pass the ``mean`` and ``std`` that they are normalized with, so that
    features are computed from such images, too; otherwise, the trunk's record says that they are
    unknown.

    Args:
        trunk: a module that maps images ``(B, C, H, W)`` to features ``(B, D)``, or to a list,
            tuple or dictionary with one such tensor, or with one named ``pooler_output``. If the
            images have a different number of channels, the first convolution is adapted, which is
            logged.
        data: the data set; the bank has one row per image.
        loss: None: a loss for small data sets and short runs (``info_nce``, τ = 0.2, λ = 0.75,
            half as many negatives as images, at most 1,024), which is logged.
            ``PIRLLoss(len(data))`` has the paper's settings, for millions of images.
        hidden_dim: hidden layer width in the heads; None: linear heads, as in the paper.
        mean: per-channel mean, from 0 to 1 for uint8; None: see above.
        std: per-channel standard deviation, in the same units.

    Attributes:
        trunk: the network being pre-trained; keep this one afterward. The attribute
            ``network_config`` records the images that it is trained on.
        f: the head for the image.
        g: the heads for the transformed versions, by view name.
        loss: the :class:`~pirl_plugin.method.loss.PIRLLoss`.

    Raises:
        ValueError: ``data`` is not an ``ImageDataset``, no view is named ``images``, no image is
            readable, the trunk cannot process a view or does not return one vector per image, or
            ``loss`` is for a different number of images.

    Example:
        >>> from pirl_plugin import JigsawViews, WideResNet, collate_views
        >>> photos = [torch.randint(256, (3, 60, 80), dtype=torch.uint8) for _ in range(8)]
        >>> data = ImageDataset(photos, JigsawViews(64, patches_crop_size=96, patch_size=24))
        >>> model = PIRL(WideResNet(10, width=0.5), data)
        >>> batch = collate_views([data[3], data[7]])
        >>> model(batch).backward()  # and the optimizer's step, then:
        >>> model.update()
        >>> model.bank.visited.nonzero().flatten().tolist()
        [3, 7]
    """

    def __init__(
        self,
        trunk: nn.Module,
        data: ImageDataset,
        loss: PIRLLoss | None = None,
        hidden_dim: int | None = None,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(data, ImageDataset):
            raise Refused(
                f"data: expected an ImageDataset, got {type(data).__name__}. Pass "
                f"ImageDataset(images, views); for a subset, ImageDataset(Subset(images, rows), "
                f"views)."
            )
        views = _blank_batch(data)
        images = views["images"]
        loss = loss or _loss_for_few_images(len(data), 0.75 if len(views) > 1 else 0)
        if loss.bank.num_rows != len(data):  # rows without an image would stay random, as negatives
            raise Refused(
                f"The loss has {loss.bank.num_rows:,} rows, but data has {len(data):,} images. "
                f"Pass loss=PIRLLoss(len(data), …)."
            )
        self.trunk = trunk
        adapt_channels(trunk, images.shape[1])
        # Our views keep the units of the images; the user's own views normalize floats, if at all.
        self._normalizes_floats = isinstance(data.views, Views)
        config = self._config_for(data, images, mean, std)
        data.reading = data.reading._replace(nodata=config.nodata)
        if config.has_statistics and config.pixel_type == data.pixel_type:
            data.reading = data.reading._replace(mean=config.mean)
        self.trunk.network_config = config  # type: ignore[assignment]
        # The trunk is found by its tensors; a checkpoint's own record is of the images alone.
        loss.images = replace(config, architecture="", options={}).to_dict()
        self.loss = loss
        device = next((parameter.device for parameter in trunk.parameters()), None)
        width = feature_width(
            trunk, {name: self._normalized(view.to(device)) for name, view in views.items()}
        )
        _warn_about_classifier(trunk, width)
        embedding_dim = loss.config.embedding_dim
        heads = {}
        for name in sorted(views, key="images".__ne__):  # f draws its random weights first
            num_patches = len(views[name]) // len(images)
            head = PIRLHead(width, embedding_dim, num_patches, hidden_dim)
            heads[name] = head.to(float_dtype(trunk))
        self.f = heads.pop("images")
        self.g = nn.ModuleDict(heads)
        self._batches: list[tuple[Tensor, Tensor]] = []  # index and f(v_I), since update()

    @property
    def bank(self) -> MemoryBank:
        """The loss's memory bank; its ``rows`` are the image embeddings."""
        return self.loss.bank

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Compute Eq. 5 for a batch.

        Args:
            batch: views and ``index``, from :func:`pirl_plugin.collate_views`.

        Returns:
            The loss, a scalar: see :meth:`PIRLLoss.forward`.

        Raises:
            ValueError: a view has the wrong shape or dtype, or an index is outside the data set.
        """
        index, f_image = self._embed(batch)
        g_transformed = [head(self._features(batch[name])) for name, head in self.g.items()]
        value = self.loss(f_image, g_transformed or None, index)
        if self.training and torch.is_grad_enabled():
            self._keep(index, f_image.detach())
        return value

    @torch._disable_dynamo
    def _keep(self, index: Tensor, f_image: Tensor) -> None:
        """Keep a batch for :meth:`update`, and at most one epoch of batches."""
        num_images = sum(len(kept) for kept, _ in self._batches) * world_size()
        if num_images >= self.bank.num_rows:
            self._batches.pop(0)
        self._batches.append((index, f_image))

    def update(self) -> None:
        """Move the bank's rows toward f(v_I), after the optimizer's step. Collective.

        With gradient accumulation, this applies all batches since the last update, in order.

        Raises:
            ValueError: there was no batch, in training mode, since the last update.
        """
        if not self._batches:
            raise Refused(
                "There has been no batch since the last update(). Call update() after the "
                "optimizer's step, in training mode."
            )
        for index, f_image in self._batches:
            self.loss.update(index, f_image)
        self._batches.clear()

    @torch.no_grad()
    def fill_bank(self, batches: Iterable[Mapping[str, Tensor]]) -> None:
        """Replace the bank's random rows with f(v_I), before training. Collective.

        Args:
            batches: the loader's batches. Rows for images in no batch stay random.
        """
        for batch in batches:
            self.loss.fill_bank(*self._embed(batch))

    def _embed(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return a batch's index ``(B,)`` and f(v_I) ``(B, D)``, on the model's device."""
        f_image = self.f(self._features(batch["images"]))
        return batch["index"].to(f_image.device), f_image

    def _features(self, images: Tensor) -> Tensor:
        """Return the trunk's features for a view."""
        images = images.to(self.bank.rows.device, non_blocking=True)
        return pooled_features(self.trunk(self._normalized(images)))

    def _normalized(self, images: Tensor) -> Tensor:
        """Normalize images, unless the views return floats of their own; use the trunk's dtype."""
        if not images.is_floating_point() or self._normalizes_floats:
            config = network_config_of(self.trunk)
            images = normalize_images(images, config.mean, config.std)
        return images.to(float_dtype(self.trunk))

    def _config_for(
        self,
        data: ImageDataset,
        images: Tensor,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
    ) -> NetworkConfig:
        """Return the trunk's record, with the images that it is trained on.

        Args:
            data: the images.
            images: views ``images`` of them, ``(B, C, S, S)``.
            mean: the user's mean.
            std: the user's standard deviation.

        Raises:
            Refused: the statistics of the views cannot be measured.
        """
        views = PixelType(images.shape[1], images.dtype)
        is_own_float = images.is_floating_point() and not self._normalizes_floats
        recorded = network_config_of(self.trunk).with_channels(views.channels)
        config = recorded.with_values(
            "run",
            size=images.shape[-1],
            dtype=data.pixel_type.dtype if is_own_float else views.dtype,
            nodata=data.source.nodata,
            channel_names=data.source.channel_names,
        )
        if (mean is None) != (std is None):
            raise Refused("Pass both `mean` and `std`, or neither.")
        if mean is not None:
            return config.with_values("argument", mean=mean, std=std)
        if is_own_float:
            return config.with_values(UNKNOWN, mean=config.mean, std=config.std)
        has_same_images = recorded.pixel_type == views
        has_same_images &= recorded.allows_channels(data.source.channel_names)
        if has_same_images and recorded.has_statistics:
            if views != RGB:
                warn("PIRL uses the mean and std in the trunk's record.")
            return config
        if views not in (RGB, data.pixel_type):
            raise Refused(
                f"The views have {views}, but the images have {data.pixel_type}, so the mean and "
                f"std of the views cannot be measured. Pass `mean` and `std`."
            )
        statistics = data.source.statistics(Reading(views, data.reading.rgb, config.nodata))
        return config.with_values("images", **statistics._asdict())


def _warn_about_classifier(trunk: nn.Module, width: int) -> None:
    """Warn if a trunk's features are a classifier's outputs."""
    name, last = list(trunk.named_modules())[-1]
    if isinstance(last, nn.Linear) and last.out_features == width:
        warn(
            f"The trunk ends in a classifier, {name} = {last}, so PIRL trains its {width} "
            f"outputs as features. Replace it with torch.nn.Identity()."
        )


def _blank_batch(data: ImageDataset) -> dict[str, Tensor]:
    """Return views of two black images, because BatchNorm may refuse a single one.

    Raises:
        Refused: no view is named ``images``.
    """
    blank = data.blank_views()
    batch = collate_views([blank, blank])
    views = {
        name: view for name, view in batch.items() if isinstance(view, Tensor) and view.ndim == 4
    }
    if "images" not in views:
        raise Refused(
            f"The views are {', '.join(views) or 'not tensors'}, but PIRL needs one named images. "
            f"Let the views function return a dictionary of tensors, such as {{'images': image, "
            f"'transformed': rotated}}."
        )
    return views


def _loss_for_few_images(num_images: int, lambda_invariance: float) -> PIRLLoss:
    """Return a loss for small data sets and short runs, and log its settings."""
    loss = PIRLLoss(
        num_images,
        estimator="info_nce",
        temperature=0.2,
        num_negatives=min(1024, num_images // 2),
        lambda_invariance=lambda_invariance,
    )
    if rank() == 0:
        warn(
            f"PIRL uses its default loss for small data sets: estimator info_nce, temperature 0.2, "
            f"{loss.config.num_negatives:,} negatives, lambda_invariance {lambda_invariance:g}. "
            f"For the paper's, pass loss=PIRLLoss(len(data))."
        )
    return loss
