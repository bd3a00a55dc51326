"""Find the trunk in a checkpoint of any layout, and check that it is complete.

A checkpoint is flattened to tensors by dotted names. A trunk is the tensors with one prefix, such
as ``classy_state_dict.base_model.model.trunk._feature_blocks.`` in VISSL's layout.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.resnet import STAGES, ResNetTrunk, WideResNet, resnet_title
from pirl_plugin.models.timm_trunk import (
    DESCRIPTION,
    TimmTrunk,
    create_network,
    describe,
    read_description,
    resolve_source,
    timm_title,
)
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import Refused

COUNTER = "num_batches_tracked"
"""Unused buffer of batch norm; files of PyTorch < 0.4.1 and of Caffe2 do not have it."""

# How programs name the parts of a ResNet: their name -> torchvision's. In all of them, the names
# inside a part are torchvision's.
_PART_NAMES: tuple[dict[str, str], ...] = (
    {name: name for name in ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")},
    # lightly: an nn.Sequential of the children; its 2 (ReLU) and 3 (pooling) have no tensors.
    {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"},
)
# A prefix is a ResNet's if one of these convolutions follows it.
_MARKED_PARTS = ("layer1", "layer4")
_MARK = ".0.conv1.weight"
# Wrappers of torch put these parts into names, also in the middle of them.
_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")
# If a file holds several trunks, the first of these is taken, as in the papers' evaluation.
_PREFERRED = (
    "classy_state_dict.base_model.model.trunk.",  # VISSL: not the momentum encoder in its loss
    "encoder_q.",  # MoCo: not the key encoder
    "teacher.",  # DINO: not the student
    "state_dict_ema.",  # timm: the averaged weights, as timm itself takes
)


@dataclass(frozen=True)
class Trunk:
    """A complete trunk: a ResNet, or a network of timm.

    Attributes:
        tensors: by torchvision's or timm's names, without a classifier; contiguous, on the CPU.
        prefix: of the tensors' names in the checkpoint.
        depth: of a ResNet, as ``width`` and ``small_stem``: see :class:`pirl_plugin.WideResNet`.
        timm: timm's name of the network; empty for a ResNet.
        options: keyword arguments of ``timm.create_model``.
        preprocessing: of the images in its training.
    """

    tensors: dict[str, Tensor] = field(repr=False)
    prefix: str = ""
    depth: int = 50
    width: float = 1
    small_stem: bool = False
    timm: str = ""
    options: dict[str, object] = field(default_factory=dict)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    @property
    def title(self) -> str:
        """A title, such as ``ResNet-10 of width 0.5`` or ``timm's vit_tiny (img_size=48)``."""
        if self.timm:
            return timm_title(self.timm, self.options)
        return resnet_title(self.depth, self.width, self.small_stem)

    @property
    def is_usual(self) -> bool:
        """Whether torchvision and timm have a constructor for this ResNet."""
        return not self.timm and self.width == 1 and not self.small_stem and self.depth != 10

    def weights(self) -> dict[str, Tensor]:
        """Return all tensors except batch norm's counters: 265 for ResNet-50."""
        return {name: tensor for name, tensor in self.tensors.items() if not name.endswith(COUNTER)}

    def vissl_state(self) -> dict[str, Tensor]:
        """Return tensors by the names of VISSL's ResNet, of ``pirl_resnet`` or of ``pirl_timm``."""
        if self.timm:
            named = {f"net.{name}": tensor for name, tensor in self.tensors.items()}
            return {DESCRIPTION: describe(self.timm, self.options), **named}
        return {f"_feature_blocks.{name}": tensor for name, tensor in self.tensors.items()}

    def build(self) -> AnyTrunk:
        """Return the network, in evaluation mode: it maps normalised images to features."""
        network: AnyTrunk
        if self.timm:
            network = TimmTrunk(self.timm, self.options)
        else:
            network = ResNetTrunk(self.depth, self.width, self.small_stem)
        network.load_state_dict(self.vissl_state(), strict=False)  # counters may be missing
        network.preprocessing = self.preprocessing
        return network.eval()


def find_trunk(
    checkpoint: Mapping[str, object],
    name: str,
    *,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
) -> Trunk:
    """Find the trunk of a checkpoint: a ResNet, or a network of timm.

    Args:
        checkpoint: nested dictionaries; arrays count as tensors.
        name: name of the checkpoint in errors.
        prefix: prefix of the trunk's tensors, or its end, if the file has several trunks.
        timm: timm's name of the network, if the file does not have it.
        timm_options: keyword arguments of ``timm.create_model``, with ``timm``.

    Raises:
        ValueError: there is no trunk, several trunks, an incomplete one, or values that are not
            finite; or the network is timm's, and timm is not installed.
    """
    tensors = dict(_flatten(checkpoint))
    if timm:
        return _timm_trunk(tensors, name, prefix, timm, timm_options or {})
    described = _prefixes_of(tensors, [DESCRIPTION])
    if any(_is_at(candidate, prefix) for candidate in described):
        trunk_prefix = _choose(described, name, prefix)
        timm, options = read_description(tensors[trunk_prefix + DESCRIPTION], name)
        return _timm_trunk(tensors, name, f"{trunk_prefix}net", timm, options)
    return _resnet_trunk(tensors, name, prefix)


def _resnet_trunk(tensors: Mapping[str, Tensor], name: str, prefix: str | None) -> Trunk:
    """Return the ResNet of a checkpoint."""
    part_names_at: dict[str, dict[str, str]] = {}  # prefix of a ResNet → names of its parts
    for names in _PART_NAMES:
        marks = [f"{part}{_MARK}" for part in names if names[part] in _MARKED_PARTS]
        for candidate in _prefixes_of(tensors, marks):
            part_names_at.setdefault(candidate, names)
    if not part_names_at:
        raise Refused(
            f"{name} holds no ResNet: expected tensors such as layer1.0.conv1.weight, after any "
            f"prefix; for a network of timm, such as a ViT, give its name with --timm NAME"
        )
    trunk_prefix = _choose(list(part_names_at), name, prefix)
    part_names = part_names_at[trunk_prefix]
    # The trunk's tensors by torchvision's names, and the parts beside it.
    state = {}
    other_parts = []
    for full_name, tensor in tensors.items():
        if full_name.startswith(trunk_prefix):
            part, _, rest = full_name.removeprefix(trunk_prefix).partition(".")
            if part in part_names:
                state[f"{part_names[part]}.{rest}"] = tensor
            else:
                other_parts.append(part)

    # The network: the depth whose names differ least, and width and stem by conv1's shape.
    num_differing = {depth: len(_shapes(depth, 1, False).keys() ^ state.keys()) for depth in STAGES}
    depth = min(STAGES, key=num_differing.__getitem__)
    stem = state.get("conv1.weight", torch.empty(64, 3, 7, 7))
    width = stem.shape[0] / 64
    small_stem = tuple(stem.shape[2:]) == (3, 3)
    expected = _shapes(depth, width, small_stem)
    if mismatch := compare(expected, state):
        place = f" at {trunk_prefix}" if trunk_prefix else ""
        raise Refused(
            f"{name}{place} is not a whole trunk; it differs from the nearest, ResNet-{depth} of "
            f"width {width:g}: {mismatch}; for a network of timm, give --timm NAME"
        )
    # As in the network, whatever the file's order: exported files of equal weights are equal.
    ordered = {key: state[key] for key in expected if key in state}
    checked = _checked(ordered, other_parts, name)
    return Trunk(checked, trunk_prefix, depth, width, small_stem)


def _timm_trunk(
    tensors: Mapping[str, Tensor],
    name: str,
    prefix: str | None,
    timm: str,
    options: Mapping[str, object],
) -> Trunk:
    """Return the network of timm of a checkpoint."""
    source = timm  # perhaps an address, which a checkpoint does not name
    timm, described = resolve_source(source)
    options = {**described, **options}
    with torch.device("meta"):
        network: Any = create_network(source, options)
    expected = network.state_dict()
    prefixes = _prefixes_of_network(tensors, expected)
    if not prefixes:
        raise Refused(
            f"{name} holds no {timm}: expected its {len(expected)} tensors, such as "
            f"{next(iter(expected))}, after any prefix"
        )
    trunk_prefix = _choose(prefixes, name, prefix)
    state = {key: tensors[trunk_prefix + key] for key in expected if trunk_prefix + key in tensors}
    if mismatch := compare(expected, state):
        raise Refused(
            f"{name} is not timm's {timm}: {mismatch}; give its own name with --timm NAME, or its "
            f"options with --timm-option KEY=VALUE, such as img_size=384"
        )
    other_parts = []
    for full_name in tensors:
        if full_name.startswith(trunk_prefix):
            key = full_name.removeprefix(trunk_prefix)
            if key not in state:
                part, _, _ = key.partition(".")
                other_parts.append(part)
    return Trunk(
        _checked(state, other_parts, name),
        trunk_prefix,
        timm=timm,
        options=dict(options),
        preprocessing=Preprocessing.from_timm(network.pretrained_cfg, timm).of_timm_options(
            options
        ),
    )


def _prefixes_of_network(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> list[str]:
    """Return the prefix of each whole network in a file; if none is whole, of the nearest ones.

    One tensor does not tell a network: the blocks of a ResNet have a ``conv1.weight`` too.

    Args:
        tensors: of the file.
        expected: of the network, by its own names.
    """
    same_name: Counter[str] = Counter()  # prefix → number of the network's tensors after it
    same_shape: Counter[str] = Counter()
    for full_name, tensor in tensors.items():
        for match in re.finditer(r"(?:^|(?<=\.))(?=.)", full_name):
            key = full_name[match.start() :]
            if key in expected and not key.endswith(COUNTER):
                prefix = full_name[: match.start()]
                same_name[prefix] += 1
                same_shape[prefix] += expected[key].shape == tensor.shape
    total = sum(not key.endswith(COUNTER) for key in expected)
    complete = [prefix for prefix, count in same_shape.items() if count == total]
    most = max(same_name.values(), default=0)
    return complete or [prefix for prefix, count in same_name.items() if count == most]


def _flatten(node: Mapping[str, object], path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors and arrays of nested dictionaries, with their dotted names."""
    for key, value in node.items():
        if isinstance(value, nn.Module):  # only in files whose code was allowed to run
            value = value.state_dict()
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{path}{key}.")
        elif isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.ndim):
            parts = f"{path}{key}".split(".")
            name = ".".join(part for part in parts if part not in _WRAPPERS)
            yield name, torch.as_tensor(value)


def _prefixes_of(tensors: Mapping[str, Tensor], endings: Sequence[str]) -> list[str]:
    """Return what is before an ending in the tensors' names: nothing, or keys and a dot."""
    prefixes = []
    for ending in endings:
        for name in tensors:
            prefix = name.removesuffix(ending)
            if name.endswith(ending) and prefix[-1:] in ("", "."):
                prefixes.append(prefix)
    return prefixes


def _choose(prefixes: Sequence[str], name: str, user_prefix: str | None) -> str:
    """Return the prefix of the trunk.

    Raises:
        ValueError: none is the user's; or there are several, and none is preferred.
    """
    matching = [prefix for prefix in prefixes if _is_at(prefix, user_prefix)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(prefix or "the top" for prefix in prefixes)
    if not matching:
        raise Refused(f"{name} holds no trunk at {user_prefix}: expected one of {listed}")
    for part in _PREFERRED:
        preferred = [prefix for prefix in matching if part in prefix]
        if len(preferred) == 1:
            logging.root.info(f"{name} holds trunks at {listed}: took {preferred[0]}")
            return preferred[0]
    raise Refused(
        f"{name} holds {len(matching)} trunks, at {listed}: expected one; give --trunk PREFIX"
    )


def _is_at(prefix: str, user_prefix: str | None) -> bool:
    """Return whether a prefix is the user's, or ends with it; any is, if the user gives none."""
    if user_prefix is None or prefix == user_prefix:
        return True
    return f".{prefix}".endswith(f".{user_prefix.strip('.')}.")


@lru_cache(maxsize=16)
def _shapes(depth: int, width: float, small_stem: bool) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a trunk, in the network's order."""
    with torch.device("meta"):
        network = WideResNet(depth, width, small_stem)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def _checked(
    tensors: Mapping[str, Tensor], other_parts: Sequence[str], name: str
) -> dict[str, Tensor]:
    """Return a trunk's tensors, contiguous; warn of the file's other parts, such as ``fc``.

    Raises:
        Refused: values are not finite.
    """
    parts = [part for part in dict.fromkeys(other_parts) if part != DESCRIPTION]
    if parts:
        logging.root.warning(f"{name}: not part of the trunk: {truncate(parts)}")
    contiguous = {}
    not_finite = []
    for key, tensor in tensors.items():
        contiguous[key] = tensor.detach().contiguous()
        if not bool(tensor.isfinite().all()):
            not_finite.append(key)
    if not_finite:
        raise Refused(f"{name} has values that are not finite, in {truncate(not_finite)}")
    return contiguous


def compare(expected: Mapping[str, Tensor | tuple[int, ...]], tensors: Mapping[str, Tensor]) -> str:
    """Compare tensors by name and shape. Counters of batch norm may be missing.

    Args:
        expected: name to tensor, or to its shape.
        tensors: name to tensor.

    Returns:
        The differences in words; empty if there are none.

    Example:
        >>> import torch
        >>> net = {"conv.weight": (2,), "bn.bias": (3,)}
        >>> print(compare(net, {"conv.weight": torch.ones(4)}))
        1 of another shape: conv.weight (4,), expected (2,); 1 of 2 missing: bn.bias
    """
    other_shapes = []
    missing = []
    for name, value in expected.items():
        shape = tuple(value.shape) if isinstance(value, Tensor) else value
        if name in tensors and tuple(tensors[name].shape) != shape:
            other_shapes.append(f"{name} {tuple(tensors[name].shape)}, expected {shape}")
        elif name not in tensors and not name.endswith(COUNTER):
            missing.append(name)
    left_over = [name for name in tensors if name not in expected]

    total = sum(not name.endswith(COUNTER) for name in expected)
    differences = []
    if other_shapes:
        differences.append(f"{len(other_shapes)} of another shape: {truncate(other_shapes)}")
    if missing:
        differences.append(f"{len(missing)} of {total} missing: {truncate(missing)}")
    if left_over:
        differences.append(f"{len(left_over)} left over: {truncate(left_over)}")
    return "; ".join(differences)


def truncate(names: Sequence[str], most: int = 4) -> str:
    """Join the names, or the first of them.

    >>> truncate(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
