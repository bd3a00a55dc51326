"""Claims about one method against another, at equal images seen and at equal time."""

from __future__ import annotations

from pirl_plugin.experiments.claims import paper
from pirl_plugin.experiments.claims.claim import Claim
from pirl_plugin.experiments.claims.differences import at_equal_time, over


def _in_tables(name: str, statement: str, better: str, worse: str) -> tuple[Claim, Claim]:
    """One comparison of the paper's tables, by the pooled res5 features and by the best layers.

    The latter is what the paper measures.
    """
    measure, source = over(better, worse), paper.against(better, worse)
    return (
        Claim(name, f"{statement}, on pooled res5", f"{source}, by best layers", measure),
        Claim(
            f"{name}_best_layer",
            f"{statement}, each with its best layer, as the paper measures",
            source,
            measure,
            metric="linear_best_top1",
            by_accuracy=False,
        ),
    )


COMPARISONS = (
    Claim(
        "rotation_over_random",
        "The rotation classifier's features beat untrained ones, without which a lead over them "
        "says little",
        "not in the paper",
        over("rotation", "random"),
    ),
    Claim(
        "jigsaw_over_random",
        "The jigsaw classifier's features beat untrained ones",
        "not in the paper",
        over("jigsaw", "random"),
    ),
    *_in_tables(
        "rotation",
        "PIRL (rotation) beats the rotation classifier",
        "pirl_rotation",
        "rotation",
    ),
    *_in_tables(
        "rotation_jigsaw",
        "PIRL (rotation + jigsaw) beats PIRL (jigsaw)",
        "pirl_rotation_jigsaw",
        "pirl_jigsaw",
    ),
    *_in_tables(
        "pirl_over_jigsaw",
        "PIRL (jigsaw) beats the jigsaw classifier, at equal images seen",
        "pirl_jigsaw",
        "jigsaw",
    ),
    *_in_tables(
        "pirl_over_npid",
        "PIRL (jigsaw) beats NPID, at equal images seen and equal N",
        "pirl_jigsaw",
        "npid",
    ),
    Claim(
        "pirl_over_npidpp",
        "PIRL (jigsaw) beats NPID (longer), with more images seen and more negatives than PIRL has",
        "not in the paper, which does not state the epochs and N of its NPID++",
        over("pirl_jigsaw", "npidpp"),
    ),
    Claim(
        "pirl_over_npid_equal_time",
        "PIRL (jigsaw) beats NPID, at equal time: that of NPID's run",
        "not in the paper",
        at_equal_time("pirl_jigsaw", "npid"),
    ),
    Claim(
        "pirl_over_npidpp_equal_time",
        "PIRL (jigsaw) beats NPID (longer), at equal time",
        "not in the paper",
        at_equal_time("pirl_jigsaw", "npidpp"),
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
    *_in_tables(
        "supervised_over_pirl",
        "A linear classifier on a supervised network's features beats one on PIRL's (jigsaw)",
        "supervised",
        "pirl_jigsaw",
    ),
)
