"""How far results of PyTorch are from each other, and how far roundings may take them."""

from __future__ import annotations

from typing import Any

import torch

# The largest difference from eager, relative to the largest element, that roundings explain.
_TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}


def difference(got: Any, expected: Any) -> float:
    """The largest of all elements, relative to the largest element of its tensor."""
    from torch.utils._pytree import tree_leaves

    worst = 0.0
    for a, b in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        if isinstance(b, torch.Tensor) and b.numel() > 0:
            scale = max(float(b.double().abs().max()), 1e-30)
            error = float((a.double() - b.double()).abs().max()) / scale
            worst = max(worst, error if error == error else float("inf"))
    return worst


def tolerance_of(result: Any) -> float:
    """What roundings explain, by the types of the result's tensors."""
    from torch.utils._pytree import tree_leaves

    types = {str(x.dtype).removeprefix("torch.") for x in tree_leaves(result) if isinstance(x, torch.Tensor)}
    return max((_TOLERANCE.get(name, 1e-3) for name in types), default=1e-3)
