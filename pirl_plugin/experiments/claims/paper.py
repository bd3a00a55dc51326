"""The paper's figures of the methods that are compared here."""

from __future__ import annotations

from pirl_plugin.evaluation.published import published

LAYERS = ("conv1", "res2", "res3", "res4", "res5")
# Method → (table, its row there). Table 5's models are Sec. 4's, the others Sec. 3's.
_ROWS = {
    "npid": (2, "NPID"),
    "npidpp": (2, "NPID++"),
    "pirl_jigsaw": (2, "PIRL"),
    "jigsaw": (2, "Jigsaw"),
    "rotation": (2, "Rotation"),
    "supervised": (2, "Supervised"),
    "pirl_rotation": (5, "PIRL (Rotation)"),
    "pirl_rotation_jigsaw": (5, "PIRL (Rotation + Jigsaw)"),
}
_LAYER_ROWS = {
    "random": "Random",
    "npid": "NPID",
    "npidpp": "NPID++",
    "pirl_jigsaw": "PIRL",
    "jigsaw": "Jigsaw",
    "supervised": "Supervised",
}


def imagenet_top1(method: str) -> float | None:
    """Linear top-1 on ImageNet, percent; None where the paper has none.

    Example:
        >>> imagenet_top1("pirl_jigsaw"), imagenet_top1("vissl_pirl")
        (63.6, None)
    """
    return published(*_ROWS[method])["ImageNet"] if method in _ROWS else None


def imagenet_by_layer() -> dict[str, tuple[float, ...]]:
    """Method → linear top-1 on ImageNet of ``LAYERS``, percent (Table 7)."""
    found = {}
    for method, row in _LAYER_ROWS.items():
        figures = published(7, row)
        found[method] = tuple(figures[f"ImageNet {layer}"] or 0.0 for layer in LAYERS)
    return found


def against(better: str, worse: str) -> str:
    """Both figures, for people.

    Example:
        >>> against("pirl_jigsaw", "jigsaw")
        'Table 2; ImageNet 63.6 against 45.7'
    """
    figures = f"{imagenet_top1(better)} against {imagenet_top1(worse)}"
    return f"Table {_ROWS[better][0]}; ImageNet {figures}"


def layers(method: str) -> str:
    """The figures of each layer, for people."""
    figures = " / ".join(f"{top1}" for top1 in imagenet_by_layer()[method])
    return f"Sec. 4.1, Fig. 5; ImageNet, conv1 … res5: {figures}"


def swept(name: str) -> tuple[float, str]:
    """A sweep's value that the paper gives a number for, and the number.

    Its figures of the sweeps print none. The models of Table 5 have λ = 0.5, |T| = 9!, N = 4,096.
    """
    figures = published(5, "PIRL (Jigsaw)")
    return {
        "lambda": (0.5, f"paper, ImageNet: best at 0.5, {figures['ImageNet']} %"),
        "permutations": (362_880.0, f"paper, VOC07: best at 9!, {figures['VOC07']} mAP"),
        "negatives": (4_096.0, f"paper, ImageNet: {figures['ImageNet']} % at N = 4,096"),
    }[name]
