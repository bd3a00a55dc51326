"""Count the GPU cost of operations on meta tensors, which have shapes but no values.

An operation that needs a meta tensor's value fails, because on a GPU it would synchronize.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_TO_HOST = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class DeviceCosts(TorchDispatchMode):
    """Count costs while active.

    Attributes:
        launches: operations that write a meta tensor; views and allocations do not count.
        waits: blocking copies from a meta tensor to the CPU.
        bytes: current size of meta tensors.
        peak_bytes: maximum of ``bytes``; earlier tensors do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.waits = self.bytes = self.peak_bytes = 0
        self._counted: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _TO_HOST and self._is_to_host(func, args, kwargs):
            return self._copied(func, args, kwargs)
        for tensor in _meta_tensors((args, kwargs)):
            self._count(tensor, new=False)
        result = func(*args, **kwargs)
        outputs = _meta_tensors(result)
        allocates = func.name().partition("::")[2].startswith(("empty", "new_empty"))
        if outputs and not func.is_view and not allocates:
            self.launches += 1
        for output in outputs:
            self._count(output)
        return result

    @staticmethod
    def _is_to_host(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if func is torch.ops.aten.copy_.default:
            return bool(args[1].is_meta and not args[0].is_meta)
        target = kwargs.get("device")
        return args[0].is_meta and target is not None and target.type == "cpu"

    def _copied(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        if func is torch.ops.aten.copy_.default:
            self.waits += not (len(args) > 2 and args[2])  # non_blocking
            return args[0]
        self.waits += not kwargs.get("non_blocking", False)
        return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)

    def _count(self, tensor: Tensor, new: bool = True) -> None:
        storage = tensor.untyped_storage()
        if id(storage) in self._counted:
            return
        self._counted.add(id(storage))
        size = storage.nbytes() if new else 0
        self.bytes += size
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        weakref.finalize(storage, self._free, id(storage), size)

    def _free(self, key: int, size: int) -> None:
        self._counted.discard(key)
        self.bytes -= size


def _meta_tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.is_meta]
