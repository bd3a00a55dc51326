"""The ``LOSS.pirl_loss`` section of a configuration, checked. Imports no torch, builds no bank."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from pirl_plugin.losses.estimators import ESTIMATORS
from pirl_plugin.utils.kinds import Kind, flag, integer, number, optional
from pirl_plugin.utils.value_checks import check_choice, check_keys, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTION = "LOSS.pirl_loss"
NEGATIVES = ("per_image", "per_batch")
SCORES = ("auto", "plain", "blocked", "triton")
PLACEMENTS = ("replicated", "sharded")
DTYPES = ("float32", "bfloat16", "float16")
INITS = ("random", "embeddings")

_IMAGES = 2**31 - 1  # what the draw of negatives can count to


@dataclass
class BankConfig:
    """``LOSS.pirl_loss.bank``: see :class:`pirl_plugin.memory.MemoryBank`."""

    momentum: float = 0.5
    placement: str = "replicated"
    dtype: str = "float32"
    init: str = "random"  # or embeddings: f(v_I) as rows, by a pass before training
    seed: int | None = None  # None: the host's SEED_VALUE, and 0 without a host
    overlap: bool = True  # gather f(v_I) from the ranks while the loss is computed

    def __post_init__(self) -> None:
        _check_fields(self, "bank.")


@dataclass
class PIRLLossConfig:
    """``LOSS.pirl_loss``, with the paper's values as defaults.

    Raises:
        ValueError: a value, or a key, that the loss cannot use.
    """

    num_train_samples: int = -1  # |D|; −1: not known yet, the host fills it in
    estimator: str = "nce"
    lambda_invariance: float = 0.5
    temperature: float = 0.07
    num_negatives: int = 32000
    negatives: str = "per_image"
    replacement: bool = True
    norm_constant: float | None = None  # Z; None: estimated from the first batch
    norm_constant_momentum: float = 1.0  # below 1: Z ← m·Z + (1 − m)·(this batch's), each step
    term_weights: list[float] | None = None  # one for each output; None: by lambda_invariance
    embedding_dim: int = 128
    scores: str = "auto"  # how scores are summed: see pirl_plugin.losses.engines.choice
    bank: BankConfig = field(default_factory=BankConfig)

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.term_weights is not None:
            self.term_weights = [_plain(weight) for weight in self.term_weights]
        most = self.num_train_samples - 1
        if not self.replacement and 0 <= most < self.num_negatives:
            raise ValueError(
                f"{SECTION}.num_negatives = {self.num_negatives}: expected at most {most} without "
                f"replacement from {most + 1} images; lower it, or set replacement: true"
            )

    def weights(self, num_outputs: int) -> list[float]:
        """Weight of each output's term: Eq. 5, or ``term_weights``.

        Several transformed versions share λ equally; the image, which is last, has 1 − λ.

        Raises:
            ValueError: ``term_weights`` are of another number, or there is no transformed version
                and λ is not 0.
        """
        if self.term_weights is None:
            transformed = num_outputs - 1
            if transformed == 0 and self.lambda_invariance > 0:
                raise ValueError(
                    f"{SECTION}.lambda_invariance = {self.lambda_invariance}: expected 0 (NPID), "
                    f"since the model puts out f(v_I) alone; set it to 0, or give "
                    f"[g(v_It), f(v_I)], as config=pretrain/pirl/jigsaw_8node does"
                )
            if transformed == 0:
                return [1.0]
            share = self.lambda_invariance / transformed
            return [share] * transformed + [1 - self.lambda_invariance]
        if len(self.term_weights) != num_outputs:
            raise ValueError(
                f"{SECTION}.term_weights = {self.term_weights}: expected {num_outputs} weights, "
                f"one for each head; add or remove some, or set it to null"
            )
        return list(self.term_weights)

    def hyperparameters(self) -> dict[str, object]:
        """What a checkpoint remembers, to say where a later run's configuration differs.

        Every key but the number of images, which the bank's shape tells.
        """
        keys = asdict(self)
        del keys["num_train_samples"]
        bank = keys.pop("bank")
        return {**keys, **{f"bank.{key}": value for key, value in bank.items()}}

    @classmethod
    def from_mapping(cls, section: Mapping[str, Any]) -> PIRLLossConfig:
        """Read the section; ``name``, which the host adds, is left out.

        Raises:
            ValueError: a value, or a key, that the loss cannot use.
        """
        values = {key: value for key, value in section.items() if key != "name"}
        check_keys(SECTION, values, [f.name for f in fields(cls)])
        bank = values.pop("bank", None) or {}
        if not hasattr(bank, "items"):
            refuse(f"{SECTION}.bank", bank, "a section", "write it as {momentum: 0.5, …}")
        check_keys(f"{SECTION}.bank", bank, [f.name for f in fields(BankConfig)])
        return cls(bank=BankConfig(**bank), **values)


def _are_weights(value: object) -> bool:
    if isinstance(value, str) or not hasattr(value, "__iter__") or hasattr(value, "items"):
        return False
    weights = list(value)
    return all(map(number(0, 1e6).holds, weights)) and any(weights)


# Key -> the values that it may have.
_NAMES = {
    "estimator": ESTIMATORS,
    "negatives": NEGATIVES,
    "scores": SCORES,
    "bank.placement": PLACEMENTS,
    "bank.dtype": DTYPES,
    "bank.init": INITS,
}
_ONE_OF_THESE = "set it to one of these"
# Key -> (kind, what to do about another one).
_KINDS: dict[str, tuple[Kind, str]] = {
    "num_train_samples": (
        integer(
            2,
            _IMAGES,
            other=-1,
            expected="a number of images, at least 2, or -1 where the host fills it in",
        ),
        "give the number of images in the data set (config.DATA.TRAIN.DATA_PATHS)",
    ),
    "lambda_invariance": (
        number(0, 1, expected="a weight in [0, 1]"),
        "set it to such a weight, as 0.5",
    ),
    # Below 1/709, exp(1/τ) leaves float64, which Z is in; above 1000, all scores are alike.
    "temperature": (
        number(1.5e-3, 1e3, expected="a number from 0.0015 to 1000"),
        "the paper has 0.07",
    ),
    "num_negatives": (integer(1, _IMAGES), "set it to a number such as 32000"),
    "replacement": (flag(), _ONE_OF_THESE),
    "norm_constant": (
        optional(
            number(0, 1e300, above=True, expected="a number above 0"),
            "null to estimate it from the first batch",
        ),
        "set it to null",
    ),
    "norm_constant_momentum": (
        number(0, 1, expected="a weight in [0, 1]"),
        "1 keeps the first Z",
    ),
    "term_weights": (
        optional(Kind("weights of at least 0, one of them above", _are_weights)),
        "write it as [0.5, 0.5], or null",
    ),
    "embedding_dim": (integer(1, 65_536), "make it the head's out_dim, such as 128"),
    "bank.momentum": (
        number(0, 1, below=True, expected="a weight in [0, 1)"),
        "set it to such a weight, as 0.5",
    ),
    "bank.seed": (
        optional(integer(0, 2**63 - 1, expected="a whole number of at least 0")),
        "null is SEED_VALUE",
    ),
    "bank.overlap": (flag(), _ONE_OF_THESE),
}


def _check_fields(config: BankConfig | PIRLLossConfig, prefix: str = "") -> None:
    for entry in fields(config):
        key, value = f"{prefix}{entry.name}", getattr(config, entry.name)
        if key in _NAMES:
            check_choice(f"{SECTION}.{key}", value, _NAMES[key])
        elif key in _KINDS:
            kind, remedy = _KINDS[key]
            kind.check(f"{SECTION}.{key}", value, remedy)
        setattr(config, entry.name, _plain(value))


def _plain(value: Any) -> Any:
    """Python's own number or text for NumPy's, which ``torch.load`` refuses in a checkpoint."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value
