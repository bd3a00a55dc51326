"""The paper's figures of the methods that are compared here."""

from __future__ import annotations

from pirl_plugin.evaluation.tables.published import LAYERS, published

# Method → (table, its row there). Table 5's models are Sec. 4's, the others Sec. 3's. The paper's
# NPID++ is λ = 0 with more negatives and epochs than Wu et al.'s NPID. It does not say how many;
# here it is taken for PIRL's, which is ``npid``.
_ROWS = {
    "npid": (2, "NPID++"),
    "pirl_jigsaw": (2, "PIRL"),
    "jigsaw": (2, "Jigsaw"),
    "rotation": (2, "Rotation"),
    "supervised": (2, "Supervised"),
    "pirl_rotation": (5, "PIRL (Rotation)"),
    "pirl_rotation_jigsaw": (5, "PIRL (Rotation + Jigsaw)"),
}
_LAYER_ROWS = {
    "random": "Random",
    "npid": "NPID++",
    "pirl_jigsaw": "PIRL",
    "jigsaw": "Jigsaw",
    "supervised": "Supervised",
}


def imagenet_top1(method: str) -> float | None:
    """Linear top-1 on ImageNet, percent; None where the paper has none.

    Example:
        >>> imagenet_top1("pirl_jigsaw"), imagenet_top1("npid"), imagenet_top1("npidpp")
        (63.6, 59.0, None)
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
        >>> against("pirl_jigsaw", "npid")
        'Table 2; ImageNet 63.6 against 59.0 (its NPID++: λ = 0, N and epochs not stated)'
        >>> against("pirl_rotation_jigsaw", "pirl_jigsaw")
        'Table 5; ImageNet 63.1 against 62.2'
    """
    table, row = _ROWS[better]
    other_row = "PIRL (Jigsaw)" if (table, worse) == (5, "pirl_jigsaw") else _ROWS[worse][1]
    ours, theirs = (published(table, name)["ImageNet"] for name in (row, other_row))
    figures = f"Table {table}; ImageNet {ours} against {theirs}"
    about = " (its NPID++: λ = 0, N and epochs not stated)" if other_row == "NPID++" else ""
    return figures + about


def layers(method: str) -> str:
    """The figures of each layer, for people."""
    figures = " / ".join(f"{top1}" for top1 in imagenet_by_layer()[method])
    return f"Sec. 4.1, Fig. 5; ImageNet, conv1 … res5: {figures}"


def swept(name: str) -> tuple[float | None, str]:
    """A sweep's value that the paper gives a number for, and the number, with its measure.

    Its figures of the sweeps print none. The models of Table 5 have λ = 0.5 and N = 4,096; their
    |T| is not stated, and has no value here.
    """
    figures = published(5, "PIRL (Jigsaw)")
    return {
        "lambda": (0.5, f"paper (ImageNet, best layer): best at 0.5, {figures['ImageNet']} %"),
        "permutations": (
            None,
            f"paper (mAP on VOC07, |T| not stated): {figures['VOC07']}",
        ),
        "negatives": (
            4_096.0,
            f"paper (ImageNet, best layer): {figures['ImageNet']} % at N = 4,096",
        ),
    }[name]
