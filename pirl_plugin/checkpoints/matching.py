"""Match a file's tensors with a network: find them by names and shapes, and check them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from torch import Tensor, nn

from pirl_plugin.checkpoints.tensors import compare, count_by_prefix, select_prefix
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import truncate

# If a file holds several trunks, use the first of these, as the papers do for evaluation.
_PREFERRED = (
    "classy_state_dict.base_model.model.trunk.",  # VISSL: not the momentum encoder in its loss
    "encoder_q.",  # MoCo: not the key encoder
    "teacher.",  # DINO: not the student
    "state_dict_ema.",  # timm: the averaged weights, as timm itself does
)
OTHER_NETWORKS = (
    "Build any other network in Python, and pass it: pirl_plugin.load_trunk(FILE, network=module)."
)
"""Advice for a file whose network this package cannot build."""


def match_tensors(
    network: nn.Module,
    name: str,
    tensors: Mapping[str, Tensor],
    file: str,
    prefix: str | None = None,
    convert: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = dict,
    classifiers: tuple[str, ...] = (),
) -> dict[str, Tensor]:
    """Find the tensors that fit a network best, and return those of its layers.

    Tensors for other layers, such as a classifier, are ignored; a warning names their first parts.

    Args:
        network: the network.
        name: the network's name, for messages.
        tensors: a file's tensors.
        file: file name, for messages.
        prefix: as in :func:`pirl_plugin.load_trunk`.
        convert: converts tensors to the network's names and shapes.
        classifiers: prefixes of tensors that are ignored even if layers have similar names.

    Raises:
        Refused: no tensors fit, or several sets fit equally well; or the tensors are incomplete,
            left over, of another shape or not finite.
    """
    expected = network.state_dict()
    shapes = {(key, value.shape) for key, value in expected.items()}
    converted = {}  # prefix → tensors under the network's names
    num_fitting = {}  # prefix → number of tensors that fit
    for candidate, count in count_by_prefix(tensors).items():
        if 2 * count >= len(expected):
            state = convert(select_prefix(tensors, candidate))
            converted[candidate] = state
            num_fitting[candidate] = len(shapes & {(key, state[key].shape) for key in state})
    most = max(num_fitting.values(), default=0)
    if 2 * most < len(expected):  # the file holds another network
        raise Refused(
            f"{file} does not hold {name}: most of its {len(expected)} tensors, such as "
            f"{next(iter(expected))}, are missing. Check the network's name and options. "
            f"{OTHER_NETWORKS}"
        )
    best_fitting = [candidate for candidate, number in num_fitting.items() if number == most]
    chosen = choose_prefix(best_fitting, file, prefix)
    state = converted[chosen]
    for key, tensor in select_prefix(tensors, chosen).items():
        if key in state and state[key].shape != tensor.shape:
            old = tuple(tensor.shape)
            warn(f"{file}: timm resized {key} from {old} to {tuple(state[key].shape)}")
    of_layers = {key: tensor for key, tensor in state.items() if not key.startswith(classifiers)}
    if mismatch := compare(expected, of_layers):
        raise Refused(
            f"{file} does not match {name}: {mismatch}. If it is another network, or has other "
            f"options, such as img_size=384, pass them as `timm` and `timm_options`."
        )
    return _known(state, expected, file)


def _known(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], file: str
) -> dict[str, Tensor]:
    """Return the expected tensors; warn about others, and refuse values that are not finite."""
    known = {key: tensor for key, tensor in state.items() if key in expected}
    not_finite = [key for key, tensor in known.items() if not bool(tensor.isfinite().all())]
    if not_finite:
        raise Refused(f"{file} has NaN or infinite values in {truncate(not_finite)}.")
    if ignored := {key.partition(".")[0] for key in state.keys() - known.keys()}:
        warn(f"{file}: ignored {truncate(sorted(ignored))}")
    return known


def choose_prefix(prefixes: Collection[str], file: str, user_prefix: str | None) -> str:
    """Choose the trunk's prefix.

    Raises:
        Refused: none matches the user's, or there are several and none is preferred.
    """
    matching = list(prefixes)
    if user_prefix is not None:
        name = f"{user_prefix.strip('.')}.".lstrip(".")
        if name in prefixes:
            return name
        matching = [prefix for prefix in prefixes if f".{prefix}".endswith(f".{name}")]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(prefix.removesuffix(".") or "'' (the top)" for prefix in prefixes)
    if not matching:
        raise Refused(f"{file} holds no network at {user_prefix}. There are networks at {listed}.")
    for part in _PREFERRED:
        preferred = [prefix for prefix in matching if part in prefix]
        if len(preferred) == 1:
            warn(f"{file} holds networks at {listed}; using {preferred[0]}")
            return preferred[0]
    raise Refused(f"{file} holds {len(matching)} networks, at {listed}. Choose one as `prefix`.")
