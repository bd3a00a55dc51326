"""The paper's claims, and some of this project's, as differences that are positive if they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims import paper
from pirl_plugin.experiments.claims.differences import (
    at_equal_time,
    invariance,
    layers,
    over,
    over_jigsaw_everywhere,
    per_doubling,
    relative_invariance,
    swept,
)
from pirl_plugin.experiments.claims.paper import LAYERS

if TYPE_CHECKING:
    from pirl_plugin.experiments.claims.differences import Measure


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or of this project about itself.

    Attributes:
        id: its name in ``claims.json``.
        statement: what is claimed, and which difference is taken for it.
        source: where the paper says so, with its figures; or which comparison this is.
        measure: the difference of one seed, above 0 where the statement holds.
        unit: of the difference.
        by_accuracy: whether it is a difference of accuracies, so that other measures of accuracy
            have something to say about it.
    """

    id: str
    statement: str
    source: str
    measure: Measure
    unit: str = "points of top-1"
    by_accuracy: bool = True


_LAMBDAS = (0, 0.25, 0.5, 0.75, 1)
CLAIMS = (
    Claim(
        "invariance_mean",
        "Distances between image and transformed image are smaller for PIRL than for the jigsaw "
        "classifier (mean of the classifier's minus PIRL's)",
        "Sec. 4.1, Fig. 4",
        invariance("mean"),
        unit="l2 distance of unit vectors",
        by_accuracy=False,
    ),
    Claim(
        "invariance_spread",
        "Those distances vary less for PIRL than for the jigsaw classifier (standard deviation of "
        "the classifier's minus PIRL's)",
        "Sec. 4.1, Fig. 4",
        invariance("std"),
        unit="l2 distance of unit vectors",
        by_accuracy=False,
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
        "λ = 0.5 is best (it minus the best of the other values)",
        "Sec. 4.2",
        swept("lambda", _LAMBDAS, lambda top1: top1[0.5] - max(top1[x] for x in top1 if x != 0.5)),
    ),
    Claim(
        "lambda_sensitive",
        "Quality depends on λ (λ = 0.5 minus the mean of λ = 0 and λ = 1)",
        "Sec. 4.2",
        swept("lambda", (0, 0.5, 1), lambda top1: top1[0.5] - (top1[0] + top1[1]) / 2),
    ),
    Claim(
        "permutations_over_jigsaw",
        "PIRL beats the jigsaw classifier at every number of permutations (smallest lead over "
        "|T| = 10, 100, 1,000)",
        "Sec. 4.2, mAP on VOC07 there",
        over_jigsaw_everywhere,
    ),
    Claim(
        "permutations_gain",
        "PIRL gains from very many permutations (|T| = 9! minus |T| = 1)",
        "Sec. 4.2, mAP on VOC07 there",
        swept("permutations", (1, 362_880), lambda top1: top1[362_880] - top1[1]),
    ),
    Claim(
        "negatives",
        "More negatives tend to help (least-squares slope of top-1 over log2 N)",
        "Sec. 4.2",
        per_doubling,
        unit="points of top-1 per doubling of N",
    ),
    Claim(
        "rotation",
        "PIRL (rotation) beats the rotation classifier",
        paper.against("pirl_rotation", "rotation"),
        over("pirl_rotation", "rotation"),
    ),
    Claim(
        "rotation_jigsaw",
        "PIRL (rotation + jigsaw) beats PIRL (jigsaw)",
        "Table 5; ImageNet 63.1 against 62.2",
        over("pirl_rotation_jigsaw", "pirl_jigsaw"),
    ),
    Claim(
        "pirl_over_jigsaw",
        "PIRL (jigsaw) beats the jigsaw classifier, at equal images seen",
        paper.against("pirl_jigsaw", "jigsaw"),
        over("pirl_jigsaw", "jigsaw"),
    ),
    Claim(
        "pirl_over_npid",
        "PIRL (jigsaw) beats NPID, at equal images seen",
        paper.against("pirl_jigsaw", "npid"),
        over("pirl_jigsaw", "npid"),
    ),
    Claim(
        "pirl_over_npidpp",
        "PIRL (jigsaw) beats NPID++, which has seen more images with more negatives",
        paper.against("pirl_jigsaw", "npidpp"),
        over("pirl_jigsaw", "npidpp"),
    ),
    Claim(
        "pirl_over_npid_equal_time",
        "PIRL (jigsaw) beats the better of NPID and NPID++, at equal time",
        "not in the paper",
        at_equal_time("pirl_jigsaw", "npid", "npidpp"),
    ),
    Claim(
        "pirl_over_jigsaw_equal_time",
        "PIRL (jigsaw) beats the jigsaw classifier, at equal time",
        "not in the paper",
        at_equal_time("pirl_jigsaw", "jigsaw"),
    ),
    Claim(
        "pirl_over_vissl",
        "PIRL (jigsaw) beats VISSL's own PIRL, at equal images seen",
        "not in the paper",
        over("pirl_jigsaw", "vissl_pirl"),
    ),
    Claim(
        "pirl_over_vissl_equal_time",
        "PIRL (jigsaw) beats VISSL's own PIRL, at equal time",
        "not in the paper",
        at_equal_time("pirl_jigsaw", "vissl_pirl"),
    ),
    Claim(
        "supervised_over_pirl",
        "A linear classifier on a supervised network's features beats one on PIRL's (jigsaw)",
        paper.against("supervised", "pirl_jigsaw"),
        over("supervised", "pirl_jigsaw"),
    ),
)
