"""PIRL's heads f and g (Sec. 2.3, App. A.1)."""

from __future__ import annotations

from torch import Tensor, nn


class PIRLHead(nn.Module):
    """Project trunk features to an image embedding (f) or a patch embedding (g).

    With one patch: ``in_dim → out_dim``. With P patches: ``in_dim → out_dim`` for each patch, then
    ``P·out_dim → out_dim`` for the concatenated projections.

    Args:
        in_dim: trunk feature width, 2048 for ResNet-50.
        out_dim: embedding width, 128 in the paper.
        num_patches: 1, or the number of patches per image, 9.
        hidden_dim: hidden layer width (with ReLU), 2048 in VISSL's later MLP heads; None for the
            paper's linear projection.

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
        self.num_patches = num_patches
        self.project: nn.Module = nn.Linear(in_dim, out_dim)
        if hidden_dim is not None:
            self.project = nn.Sequential(
                nn.Linear(in_dim, hidden_dim), nn.ReLU(inplace=True), nn.Linear(hidden_dim, out_dim)
            )
        self.merge = nn.Linear(num_patches * out_dim, out_dim) if num_patches > 1 else None

    def forward(self, features: Tensor) -> Tensor:
        """Compute embeddings.

        Args:
            features: float ``(B·P, in_dim)`` or ``(B·P, in_dim, 1, 1)``. An image's P patches are
                consecutive.

        Returns:
            ``(B, out_dim)``, not normalized.
        """
        projected = self.project(features.flatten(1))  # (B·P, out_dim)
        if self.merge is None:
            return projected
        return self.merge(projected.reshape(-1, self.num_patches * projected.shape[1]))
