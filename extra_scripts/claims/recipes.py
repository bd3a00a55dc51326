"""Compare settings for PIRL on a few thousand photos: rate, batch, λ, heads.

    python extra_scripts/claims/recipes.py --data DIR --out OUT

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``. Images, network and metrics are as in
``peers.py``; each setting changes one value in another. ``--choose`` trains with seed 0 and
evaluates on the tenth that no figure uses; without it, seeds 1, 2, … are evaluated on ``val``.
Finished runs are recorded in ``OUT/recipes.json``; run the same command again to continue.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from peer_methods import SIMCLR_COLORS
from peers import Comparison, shared_options
from recorded import RecordedRows

# Setting → method, batch, learning rate for a batch of 32 images (scaled with the batch, Goyal et
# al. 2017), and arguments that differ from the method's own.
PIRL = {"name": "pirl_jigsaw", "batch": 32, "rate": 0.06}
RECIPES: dict[str, dict[str, Any]] = {
    "rate 0.00375": {**PIRL, "rate": 0.00375},
    "rate 0.03": {**PIRL, "rate": 0.03},
    "rate 0.06": PIRL,
    "rate 0.12": {**PIRL, "rate": 0.12},
    "rate 0.06, batch 64": {**PIRL, "batch": 64},
    "rate 0.06, batch 128": {**PIRL, "batch": 128},
    "rate 0.06, λ 0.5": {**PIRL, "lambda_invariance": 0.5},
    "rate 0.06, MLP heads": {**PIRL, "hidden_dim": 512},
    "rate 0.06, SimCLR's colors": {**PIRL, **SIMCLR_COLORS},
    "NPID, rate 0.03": {**PIRL, "name": "npid", "rate": 0.03},
    "NPID, rate 0.06": {**PIRL, "name": "npid"},
}


def main() -> None:
    """Run whatever is missing in ``recipes.json``."""
    parser = shared_options(__doc__)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--choose", action="store_true", help="use seed 0, on the training images")
    options = parser.parse_args()

    comparison = Comparison(options)
    content = {"setting": comparison.about(), "runs": []}
    rows = RecordedRows(options.out / "recipes.json", content)
    measured_on = "tenth" if options.choose else "val"
    test = comparison.tenth if options.choose else comparison.test
    for seed in [0] if options.choose else options.seeds:
        for recipe in options.recipes:
            key = {"recipe": recipe, "seed": seed, "measured_on": measured_on}
            settings = {"seed": seed, "epochs": options.epochs, "test": test, **RECIPES[recipe]}
            rows.add("runs", key, partial(comparison.run, **settings))


if __name__ == "__main__":
    main()
