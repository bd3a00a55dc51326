"""The trunk ``pirl_ensemble``: two trunks as one, their features side by side (Sec. 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pirl_plugin.checkpoints.compare import MismatchError, compare_with_model
from pirl_plugin.checkpoints.networks import network_in
from pirl_plugin.checkpoints.vissl_layout import read_trunk_state

if TYPE_CHECKING:
    from vissl.config import AttrDict

_KEYS = {"MEMBER", "PARAMS_FILES", "TRUST_PICKLE"}


class PIRLEnsemble(nn.Module):
    """The trunk ``pirl_ensemble``: trained trunks of one kind, whose features are concatenated.

    Its section of the configuration::

        MODEL:
          TRUNK:
            NAME: pirl_ensemble
            PIRL_ENSEMBLE: {MEMBER: resnet, PARAMS_FILES: [FILE_1, FILE_2]}
            RESNETS: {DEPTH: 50}    # the member's own section

    ``PARAMS_FILES`` takes every file that ``pirl-plugin export`` reads; ``[]`` is refused, and
    ``""`` instead of a file leaves that member at random initialisation. ``TRUST_PICKLE: true``
    lets the files run code where torch's safe loading refuses them.

    Args:
        model_config: the host's ``MODEL`` section.
        model_name: the trunk's name; not used.

    Raises:
        FileNotFoundError: a checkpoint does not exist.
        ValueError: a key is missing or unknown, or a file cannot be read.
        MismatchError: a checkpoint does not fit the member.
    """

    def __init__(self, model_config: AttrDict, model_name: str = "pirl_ensemble") -> None:
        super().__init__()
        from vissl.models.trunks import get_model_trunk

        section = dict(model_config.TRUNK.get("PIRL_ENSEMBLE") or {})
        if {*section, "TRUST_PICKLE"} != _KEYS or not section["PARAMS_FILES"]:
            raise ValueError(
                f"MODEL.TRUNK.PIRL_ENSEMBLE = {section}: expected MEMBER, the name of a trunk, "
                f"and PARAMS_FILES, one checkpoint for each member, as {{MEMBER: resnet, "
                f"PARAMS_FILES: [FILE_1, FILE_2]}}"
            )
        member = section["MEMBER"]
        self.members = nn.ModuleList()
        for path in section["PARAMS_FILES"]:
            trunk = get_model_trunk(member)(model_config, member)
            if path:
                _load(trunk, path, member, bool(section.get("TRUST_PICKLE")))
            self.members.append(trunk)

    def forward(self, images: Tensor, out_feat_keys: list[str] | None = None) -> list[Tensor]:
        """Features of the asked-for layers.

        Args:
            images: ``(B, 3, H, W)`` float, normalised.
            out_feat_keys: as the members take them.

        Returns:
            One tensor a name, with the members' channels (dimension 1) one after the other.
        """
        features = [trunk(images, out_feat_keys) for trunk in self.members]
        return [torch.cat(layer, dim=1) for layer in zip(*features, strict=True)]


def _load(trunk: nn.Module, path: str, member: str, trust_pickle: bool) -> None:
    weights = read_trunk_state(path, trust_pickle)
    mismatch = compare_with_model(trunk.state_dict(), weights)
    if mismatch:
        found = network_in(weights)
        is_network = f"the checkpoint is {found.with_article}; " if found else ""
        raise MismatchError(
            f"{path} does not fit the trunk '{member}' of config.MODEL.TRUNK: "
            f"{mismatch.summary()}; {is_network}set that section to the network that the file "
            f"was trained with"
        )
    trunk.load_state_dict(weights, strict=False)
