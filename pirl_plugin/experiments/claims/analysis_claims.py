"""Sec. 4's claims: invariance, layers, λ, |T| and N, and what this project adds to them."""

from __future__ import annotations

from pirl_plugin.evaluation.tables.published import LAYERS
from pirl_plugin.experiments.claims import paper
from pirl_plugin.experiments.claims.claim import EACH, Claim
from pirl_plugin.experiments.claims.differences import (
    invariance,
    layers,
    over_jigsaw,
    over_value,
    per_doubling,
    relative_invariance,
    swept,
)
from pirl_plugin.experiments.claims.plan import JIGSAW_PERMUTATIONS, SWEEP_VALUES
from pirl_plugin.experiments.sweep.values import NUM_ORDERS

_SPACES = (
    "measured in different spaces, of PIRL's heads and of the classifier's pooled features, and so "
    "not comparable across methods; see invariance_relative"
)
_STATISTICS = (
    "with BatchNorm's running statistics, which fit neither images nor patches; see "
    "invariance_relative_own"
)
_LAMBDAS = SWEEP_VALUES["lambda"]
ANALYSIS = (
    Claim(
        "invariance_mean",
        "Distances between image and transformed image are smaller for PIRL than for the jigsaw "
        "classifier (mean of the classifier's minus PIRL's)",
        "Sec. 4.1, Fig. 4",
        invariance("mean"),
        unit="l2 distance of unit vectors",
        by_accuracy=False,
        note=_SPACES,
    ),
    Claim(
        "invariance_spread",
        "Those distances vary less for PIRL than for the jigsaw classifier (standard deviation of "
        "the classifier's minus PIRL's)",
        "Sec. 4.1, Fig. 4",
        invariance("std"),
        unit="l2 distance of unit vectors",
        by_accuracy=False,
        note=_SPACES,
    ),
    Claim(
        "invariance_relative",
        "The same relative to the distances of different images, because the two are measured in "
        "different spaces (mean distance of an image to its transformed versions over that to "
        "another image's: the classifier's minus PIRL's)",
        "not in the paper",
        relative_invariance("jigsaw", "pirl_jigsaw"),
        unit="share of the distance of different images",
        by_accuracy=False,
        note=_STATISTICS,
    ),
    Claim(
        "invariance_relative_own",
        "The same with BatchNorm's statistics of images and of patches apart, as in training",
        "not in the paper",
        relative_invariance("jigsaw", "pirl_jigsaw", own_statistics=True),
        unit="share of the distance of different images",
        by_accuracy=False,
    ),
    Claim(
        "invariance_relative_rotation",
        "The same of PIRL (rotation) and the rotation classifier: image and rotated image have one "
        "size, so that BatchNorm's running statistics fit both",
        "not in the paper",
        relative_invariance("rotation", "pirl_rotation"),
        unit="share of the distance of different images",
        by_accuracy=False,
    ),
    Claim(
        "layers_pirl",
        "PIRL's best layer is res5 (res5 minus the best of the others)",
        paper.layers("pirl_jigsaw"),
        layers("pirl_jigsaw", lambda top1: top1["res5"] - max(top1[x] for x in LAYERS[:-1])),
        by_accuracy=False,
    ),
    Claim(
        "layers_jigsaw_peak",
        "The jigsaw classifier's best layer is res4 (res4 minus the best of the others)",
        paper.layers("jigsaw"),
        layers("jigsaw", lambda top1: top1["res4"] - max(top1[x] for x in LAYERS if x != "res4")),
        by_accuracy=False,
    ),
    Claim(
        "layers_jigsaw_fall",
        "The jigsaw classifier's last layer falls behind the one before (res4 minus res5)",
        paper.layers("jigsaw"),
        layers("jigsaw", lambda top1: top1["res4"] - top1["res5"]),
        by_accuracy=False,
    ),
    Claim(
        "lambda_best",
        "λ = 0.5 is better than every other value (it minus 0, 0.25, 0.75 and 1)",
        "Sec. 4.2",
        {
            f"λ = {value:g}": over_value("lambda", 0.5, value, _LAMBDAS)
            for value in _LAMBDAS
            if value != 0.5
        },
        note=EACH,
    ),
    Claim(
        "lambda_over_ends",
        "λ = 0.5 is better than the mean of the ends λ = 0 and λ = 1",
        "Sec. 4.2, where quality is quite sensitive to λ",
        swept("lambda", (0, 0.5, 1), lambda top1: top1[0.5] - (top1[0] + top1[1]) / 2),
        note="no test of whether quality depends on λ: it may do so by another curve",
    ),
    Claim(
        "permutations_over_jigsaw",
        "PIRL beats the jigsaw classifier at every number of permutations that both take "
        "(|T| = 10, 100 and 1,000)",
        "Sec. 4.2, mAP on VOC07 there",
        {f"|T| = {value:,}": over_jigsaw(value) for value in JIGSAW_PERMUTATIONS},
        note=EACH,
    ),
    Claim(
        "permutations_gain",
        "PIRL gains from permutations (|T| = 9! minus |T| = 1)",
        "Sec. 4.2, mAP on VOC07 there",
        over_value("permutations", NUM_ORDERS, 1),
    ),
    Claim(
        "permutations_gain_from_many",
        "PIRL gains even from very many permutations (|T| = 9! minus |T| = 1,000)",
        "Sec. 4.2, mAP on VOC07 there",
        over_value("permutations", NUM_ORDERS, 1_000),
    ),
    Claim(
        "negatives",
        "More negatives tend to help (least-squares slope of top-1 over log2 N)",
        "Sec. 4.2",
        per_doubling,
        unit="points of top-1 per doubling of N",
    ),
)
