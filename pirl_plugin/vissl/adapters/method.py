"""Loss, head and trunks for VISSL's registries, and an ensemble of trunks (PIRL-ens, Sec. 3.2).

VISSL passes a trunk the complete ``MODEL`` section and the trunk's name. A trunk returns a list of
features to VISSL, which passes it to the heads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from classy_vision.losses import ClassyLoss
from torch import Tensor, nn

from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.tensors import compare
from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.adapters.weights import trunk_state
from pirl_plugin.vissl.own_parts import import_own_part, is_own_part

if TYPE_CHECKING:
    from vissl.config import AttrDict


class VISSLPIRLLoss(PIRLLoss, ClassyLoss):
    """:class:`~pirl_plugin.method.loss.PIRLLoss` with VISSL's base class."""

    @classmethod
    def from_config(cls, loss_config: Mapping[str, Any]) -> VISSLPIRLLoss:
        """Build the loss from the ``LOSS.pirl_loss`` section.

        Raises:
            ValueError: a key or value is invalid.
        """
        settings = dict(loss_config)
        settings.pop("name", None)
        if is_own_part(settings.get("estimator")):
            settings["estimator"] = import_own_part(settings["estimator"])
        return cls(**settings)

    def forward(self, output: Tensor | Sequence[Tensor], index: Tensor) -> Tensor:  # type: ignore[override]
        """Compute the loss from head outputs and the images' rows in the data set."""
        return super().forward(*image_and_transformed(output), index)


def image_and_transformed(output: Tensor | Sequence[Tensor]) -> tuple[Tensor, list[Tensor] | None]:
    """Return f(v_I) and the list of g(v_It), from VISSL's ``[g(v_It), …, f(v_I)]`` or f(v_I)."""
    if not isinstance(output, (list, tuple)):
        return output, None  # type: ignore[return-value]
    return output[-1], list(output[:-1]) or None


class VISSLPIRLHead(PIRLHead):
    """:class:`~pirl_plugin.models.head.PIRLHead` with VISSL's constructor."""

    def __init__(self, model_config: AttrDict, **options: Any) -> None:
        super().__init__(**options)

    def forward(self, features: Tensor | list[Tensor]) -> Tensor:
        """Compute embeddings from the tensor, or the list with one tensor, that VISSL passes."""
        if isinstance(features, list):
            (features,) = features
        return super().forward(features)


class VISSLTrunk(nn.Module):
    """A base class that gives a trunk VISSL's ``forward``."""

    named_features: Callable[[Tensor, Sequence[str]], list[Tensor]]

    def forward(self, images: Tensor, out_feat_keys: list[str] | None = None) -> list[Tensor]:
        """Compute features.

        Args:
            images: normalized, float ``(B, C, H, W)``.
            out_feat_keys: feature names; by default ``flatten``.

        Returns:
            One tensor per name, in the same order.
        """
        return self.named_features(images, out_feat_keys or ["flatten"])


class PIRLResNet(VISSLTrunk):
    """The trunk ``pirl_resnet``: a :class:`~pirl_plugin.WideResNet` under VISSL's tensor names.

    All keys in the section are optional::

        MODEL:
          TRUNK:
            NAME: pirl_resnet
            PIRL_RESNET: {DEPTH: 18, WIDTH_MULTIPLIER: 1, SMALL_STEM: false, IN_CHANNELS: 3}

    Raises:
        TypeError: a key is unknown.
        ValueError: the depth is unknown.
    """

    def __init__(self, model_config: AttrDict, model_name: str = "pirl_resnet") -> None:
        super().__init__()
        arguments: dict[str, Any] = {"depth": 18}
        for key, value in (model_config.TRUNK.get("PIRL_RESNET") or {}).items():
            arguments["width" if key == "WIDTH_MULTIPLIER" else key.lower()] = value
        self._feature_blocks = WideResNet(**arguments)

    def named_features(self, images: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Compute features at several layers; see :meth:`WideResNet.named_features`."""
        return self._feature_blocks.named_features(images, names)


class PIRLTimm(VISSLTrunk, TimmTrunk):  # type: ignore[misc]
    """The trunk ``pirl_timm``: any timm network (an optional dependency: ``pip install timm``).

    ``OPTIONS``, keyword arguments for ``timm.create_model``, are optional::

        MODEL:
          TRUNK:
            NAME: pirl_timm
            PIRL_TIMM: {NAME: vit_tiny_patch16_224, OPTIONS: {img_size: 64}}

    Raises:
        ValueError: timm is not installed, or the network or an option is unknown.
    """

    def __init__(self, model_config: AttrDict, model_name: str = "pirl_timm") -> None:
        section = model_config.TRUNK["PIRL_TIMM"]
        # Checkpoints hold plain dictionaries only.
        options = json.loads(json.dumps(section.get("OPTIONS") or {}))
        super().__init__(section["NAME"], options)


class PIRLEnsemble(nn.Module):
    """The trunk ``pirl_ensemble``: concatenates features from trained trunks of one kind.

    ::

        MODEL:
          TRUNK:
            NAME: pirl_ensemble
            PIRL_ENSEMBLE: {MEMBER: resnet, PARAMS_FILES: [FILE_1, FILE_2]}
            RESNETS: {DEPTH: 50}    # the member's own section

    ``PARAMS_FILES`` takes any file that ``pirl-plugin export`` reads; ``""`` gives a member random
    weights.

    Raises:
        FileNotFoundError: a checkpoint does not exist.
        ValueError: the section lacks a key, or a file cannot be read or does not fit the member.
    """

    def __init__(self, model_config: AttrDict, model_name: str = "pirl_ensemble") -> None:
        super().__init__()
        from vissl.models.trunks import get_model_trunk

        section = dict(model_config.TRUNK.get("PIRL_ENSEMBLE") or {})
        member = section["MEMBER"]
        self.members = nn.ModuleList()
        for path in section["PARAMS_FILES"]:
            trunk = get_model_trunk(member)(model_config, member)
            if path:
                weights = trunk_state(read_checkpoint(Path(path)), path)
                if mismatch := compare(trunk.state_dict(), weights):
                    raise Refused(
                        f"{path} does not fit '{member}' in config.MODEL.TRUNK: {mismatch}"
                    )
                # The comparison allows other parts in the file, and missing BatchNorm counters.
                trunk.load_state_dict(weights, strict=False)
            self.members.append(trunk)

    def forward(self, images: Tensor, out_feat_keys: list[str] | None = None) -> list[Tensor]:
        """Compute features.

        Args:
            images: ``(B, 3, H, W)`` float, normalized.
            out_feat_keys: feature names, as for the members.

        Returns:
            One tensor per name, with the members' channels (dimension 1) concatenated.
        """
        features = [trunk(images, out_feat_keys) for trunk in self.members]
        return [torch.cat(layer, dim=1) for layer in zip(*features, strict=True)]
