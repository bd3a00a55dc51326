"""The ``LOSS.pirl_loss`` section of a configuration, checked. Imports no torch, builds no bank."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from pirl_plugin.losses.estimators import ESTIMATORS
from pirl_plugin.utils.value_checks import (
    Check,
    check_keys,
    choice,
    flag,
    number,
    optional,
    refuse,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTION = "LOSS.pirl_loss"
NEGATIVES = ("per_image", "per_batch")
SCORES = ("auto", "plain", "blocked", "triton")
PLACEMENTS = ("replicated", "sharded")
DTYPES = ("float32", "bfloat16", "float16")
INITS = ("random", "embeddings")

_IMAGES = 2**31 - 1  # what the draw of negatives can count to
_Z = "or null to estimate it from the first batch"


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
        _check_fields(f"{SECTION}.bank", self, _BANK_CHECKS)


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
        _check_fields(SECTION, self, _CHECKS)
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
                    f"since the model puts out f(v_I) alone; set it to 0, or give the model a "
                    f"transformed version of the image, as config=pretrain/pirl/jigsaw_8node does"
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


def _check_weights(key: str, value: object) -> None:
    expected, remedy = "weights of at least 0, one of them above", "write it as [0.5, 0.5], or null"
    if value is None:
        return
    if isinstance(value, str) or not hasattr(value, "__iter__") or hasattr(value, "items"):
        refuse(key, value, expected, remedy)
    weights = list(value)
    for weight in weights:
        number(0, 1e6, expected, remedy)(key, weight)
    if not any(weights):
        refuse(key, weights, expected, remedy)


def _check_images(key: str, value: object) -> None:
    if value != -1 or isinstance(value, bool):
        expected = "a number of images, at least 2, or -1 where the host fills it in"
        whole_number(2, _IMAGES, expected, "check config.DATA.TRAIN.DATA_PATHS")(key, value)


_WEIGHT = number(0, 1, "a weight in [0, 1]", "set it to such a weight, as 0.5")
_CHECKS: dict[str, Check] = {
    "num_train_samples": _check_images,
    "estimator": choice(ESTIMATORS),
    "lambda_invariance": _WEIGHT,
    # Below 1/709, exp(1/τ) leaves float64, which Z is in; above 1000, all scores are alike.
    "temperature": number(1.5e-3, 1e3, "a number from 0.0015 to 1000", "the paper has 0.07"),
    "num_negatives": whole_number(
        1, _IMAGES, f"a whole number from 1 to {_IMAGES}", "set it to a number such as 32000"
    ),
    "negatives": choice(NEGATIVES),
    "replacement": flag(),
    "norm_constant": optional(
        number(0, 1e300, f"a number above 0, {_Z}", "set it to null", above=True)
    ),
    "norm_constant_momentum": number(0, 1, "a weight in [0, 1]", "1 keeps the first Z"),
    "term_weights": _check_weights,
    "embedding_dim": whole_number(
        1, 65_536, "a whole number from 1 to 65536", "make it the head's out_dim, such as 128"
    ),
    "scores": choice(SCORES),
}
_BANK_CHECKS: dict[str, Check] = {
    "momentum": number(0, 1, "a weight in [0, 1)", "set it to such a weight, as 0.5", below=True),
    "placement": choice(PLACEMENTS),
    "dtype": choice(DTYPES),
    "init": choice(INITS),
    "seed": optional(
        whole_number(0, 2**63 - 1, "a whole number of at least 0, or null", "null is SEED_VALUE")
    ),
    "overlap": flag(),
}


def _check_fields(
    section: str, config: BankConfig | PIRLLossConfig, checks: Mapping[str, Check]
) -> None:
    for key, check in checks.items():
        value = getattr(config, key)
        check(f"{section}.{key}", value)
        setattr(config, key, _plain(value))


def _plain(value: Any) -> Any:
    """Python's own number or text for NumPy's, which ``torch.load`` refuses in a checkpoint."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value
