"""The heads f and g of PIRL (Sec. 2.3, App. A.1)."""

from __future__ import annotations

from torch import Tensor, nn

from pirl_plugin.utils.kinds import integer

_MEANINGS = {
    "in_dim": "the width of the trunk's features",
    "out_dim": "the width of the embedding",
    "num_patches": "the patches of an image",
    "hidden_dim": "the width of the hidden layer",
}


class PIRLHead(nn.Module):
    """Projection of trunk features to the embedding, of an image (f) or of its patches (g).

    With one patch: ``in_dim → out_dim``. With P patches: each patch ``in_dim → out_dim``, the
    projections concatenated in the order they come in, ``P·out_dim → out_dim``.

    Args:
        in_dim: width of the trunk's features, 2048 for ResNet-50.
        out_dim: width of the embedding, 128 in the paper.
        num_patches: 1, or the patches of an image, 9.
        hidden_dim: None for the paper's linear projection, or the width of a hidden layer with
            ReLU, the MLP form of VISSL's follow-up (2048).

    Raises:
        ValueError: a width or ``num_patches`` that is no whole number of at least 1.

    Example:
        >>> import torch
        >>> f, g = PIRLHead(2048), PIRLHead(2048, num_patches=9)
        >>> f(torch.randn(4, 2048)).shape, g(torch.randn(4 * 9, 2048, 1, 1)).shape
        (torch.Size([4, 128]), torch.Size([4, 128]))
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int = 128,
        num_patches: int = 1,
        hidden_dim: int | None = None,
    ) -> None:
        super().__init__()
        in_dim, out_dim = _size("in_dim", in_dim), _size("out_dim", out_dim)
        num_patches = _size("num_patches", num_patches)
        if hidden_dim is not None:
            hidden_dim = _size("hidden_dim", hidden_dim)
        self.in_dim = in_dim
        self.num_patches = num_patches
        self.project: nn.Module = nn.Linear(in_dim, out_dim)
        if hidden_dim is not None:
            self.project = nn.Sequential(
                nn.Linear(in_dim, hidden_dim), nn.ReLU(inplace=True), nn.Linear(hidden_dim, out_dim)
            )
        self.merge = nn.Linear(num_patches * out_dim, out_dim) if num_patches > 1 else None

    def forward(self, features: Tensor | list[Tensor]) -> Tensor:
        """Embed.

        Args:
            features: ``(B·P, in_dim)``, or ``(B·P, in_dim, 1, 1)``, or a list of one of these;
                the P patches of an image follow each other.

        Returns:
            ``(B, out_dim)``, not normalised.

        Raises:
            ValueError: they are of another width, or as many as no multiple of ``num_patches``.
        """
        if isinstance(features, list):
            (features,) = features
        flat = features.flatten(1)
        if flat.shape[1] != self.in_dim:
            raise ValueError(
                f"features are of shape {tuple(features.shape)}: expected (B·P, {self.in_dim}), "
                f"pirl_head.in_dim; pool the trunk's features, or set in_dim to their width"
            )
        projected = self.project(flat)  # (B·P, out_dim)
        if self.merge is None:
            return projected
        if projected.shape[0] % self.num_patches:
            raise ValueError(
                f"pirl_head.num_patches = {self.num_patches}: expected a divisor of the "
                f"{projected.shape[0]} features given; set it to the transform's grid squared"
            )
        return self.merge(projected.reshape(-1, self.num_patches * projected.shape[1]))


def _size(name: str, value: int) -> int:
    """The value, of numpy's whole numbers too, or a refusal."""
    expected = f"a whole number of at least 1, {_MEANINGS[name]}"
    integer(1, expected=expected).check(f"pirl_head.{name}", value, "set it to that")
    return int(value)
