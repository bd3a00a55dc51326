"""Average pooling of a layer to a fixed grid, for linear classifiers on images of any size."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d


class GridAvgPool2d(nn.Module):
    """Average pooling with the paper's windows where they give ``grid``, else adaptive pooling.

    The windows of App. C fit the layers of 224-px images. On other images they give other grids, or
    none; adaptive pooling then gives the same grid, so the classifier's input keeps its size.

    Args:
        grid: height and width of the output.
        kernel_size: side of the windows.
        stride: distance of the windows.
        padding: zeros on each side; they count in the averages.

    Example:
        >>> import torch
        >>> pool = GridAvgPool2d([2, 2], kernel_size=6, stride=1)  # res5 of ResNet-50
        >>> pool(torch.zeros(1, 2048, 7, 7)).shape, pool(torch.zeros(1, 2048, 1, 1)).shape
        (torch.Size([1, 2048, 2, 2]), torch.Size([1, 2048, 2, 2]))
    """

    def __init__(
        self, grid: list[int], kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.grid = (grid[0], grid[1])
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, features: Tensor) -> Tensor:
        """Pool ``(B, C, H, W)`` floating to ``(B, C, *grid)``."""
        sides = features.shape[2:]
        windows = [
            (side + 2 * self.padding - self.kernel_size) // self.stride + 1 for side in sides
        ]
        if tuple(windows) == self.grid:
            return avg_pool2d(features, self.kernel_size, self.stride, self.padding)
        return adaptive_avg_pool2d(features, self.grid)

    def extra_repr(self) -> str:
        """Return the arguments, for ``print(model)``."""
        return f"grid={self.grid}, kernel_size={self.kernel_size}, stride={self.stride}"
