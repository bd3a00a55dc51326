"""The ``LOSS.pirl_loss`` section of a configuration, checked."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ESTIMATORS = ("nce", "nce_softmax", "info_nce")
NEGATIVES = ("per_image", "per_batch")
_WEIGHTS = "weights of at least 0, one of them above"
SCORES = ("auto", "plain", "blocked", "triton")
PLACEMENTS = ("replicated", "sharded")


@dataclass
class BankConfig:
    """``LOSS.pirl_loss.bank``: see :class:`pirl_plugin.memory.MemoryBank`."""

    momentum: float = 0.5
    placement: str = "replicated"
    dtype: str = "float32"
    seed: int = 0
    overlap: bool = True  # gather f(v_I) from the ranks while the loss is computed

    def __post_init__(self) -> None:
        _one_of("bank.placement", self.placement, PLACEMENTS)


@dataclass
class PIRLLossConfig:
    """``LOSS.pirl_loss``, with the paper's values as defaults.

    Raises:
        ValueError: a value, or a key, that the loss cannot use.
    """

    num_train_samples: int  # |D|; the host fills it in
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
    scores: str = "auto"  # how sums over the negatives are computed: see make_contrast
    bank: BankConfig = field(default_factory=BankConfig)

    def __post_init__(self) -> None:
        _one_of("estimator", self.estimator, ESTIMATORS)
        _one_of("negatives", self.negatives, NEGATIVES)
        _one_of("scores", self.scores, SCORES)
        for key, holds, expected in (
            ("lambda_invariance", lambda value: 0 <= value <= 1, "a weight in [0, 1]"),
            ("temperature", lambda value: value > 0, "above 0, such as 0.07"),
            ("num_negatives", lambda value: value >= 1, "at least 1"),
            ("norm_constant_momentum", lambda value: 0 <= value <= 1, "a weight in [0, 1]"),
        ):
            value = getattr(self, key)
            _within(key, value, _is_number(value) and holds(value), expected)
        if self.norm_constant is not None:
            constant = self.norm_constant
            expected = "above 0, or null to estimate it from the first batch"
            _within("norm_constant", constant, _is_number(constant) and constant > 0, expected)
        if self.term_weights is not None:
            for weight in self.term_weights:
                _within("term_weights", weight, _is_number(weight) and weight >= 0, _WEIGHTS)
            _within("term_weights", self.term_weights, any(self.term_weights), _WEIGHTS)
        if not self.replacement and self.num_negatives >= self.num_train_samples:
            raise ValueError(
                f"LOSS.pirl_loss.num_negatives = {self.num_negatives} without replacement: the "
                f"data set has {self.num_train_samples} images, so at most "
                f"{self.num_train_samples - 1} negatives; lower it, or set replacement: true"
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
                    f"LOSS.pirl_loss.lambda_invariance = {self.lambda_invariance}: the model puts "
                    f"out f(v_I) alone, expected 0 (NPID); or give it a transformed version of the "
                    f"image too, as config=pretrain/pirl/jigsaw_8node does"
                )
            if transformed == 0:
                return [1.0]
            share = self.lambda_invariance / transformed
            return [share] * transformed + [1 - self.lambda_invariance]
        if len(self.term_weights) != num_outputs:
            raise ValueError(
                f"LOSS.pirl_loss.term_weights = {list(self.term_weights)}: expected "
                f"{num_outputs} weights, one for each head of MODEL.MULTI_INPUT_HEAD_MAPPING"
            )
        return list(self.term_weights)

    def hyperparameters(self) -> dict[str, Any]:
        """What a checkpoint remembers, to say where a later run's configuration differs."""
        return {
            "estimator": self.estimator,
            "lambda_invariance": self.lambda_invariance,
            "temperature": self.temperature,
            "num_negatives": self.num_negatives,
            "bank.momentum": self.bank.momentum,
            "bank.seed": self.bank.seed,  # which keys the draw of negatives
        }

    @classmethod
    def from_mapping(cls, section: Mapping[str, Any]) -> PIRLLossConfig:
        """Read the section; ``name``, which the host adds, is left out."""
        values = {key: value for key, value in section.items() if key != "name"}
        _known("LOSS.pirl_loss", values, cls)
        bank = dict(values.pop("bank", {}) or {})
        _known("LOSS.pirl_loss.bank", bank, BankConfig)
        return cls(bank=BankConfig(**bank), **values)


def _one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"LOSS.pirl_loss.{key} = {value!r}: expected one of {', '.join(choices)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _within(key: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"LOSS.pirl_loss.{key} = {value}: expected {expected}")


def _known(section: str, values: Mapping[str, Any], schema: type) -> None:
    names = [f.name for f in fields(schema)]
    for key in values:
        if key not in names:
            raise ValueError(f"{section} has no key '{key}': expected {', '.join(names)}")
