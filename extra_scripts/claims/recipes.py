"""Compare settings for PIRL on a few thousand photos: rate, batch, λ, heads.

    python extra_scripts/claims/recipes.py --data DIR --out OUT

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``. Images, network and metrics are as in
``peers.py``; each setting changes one value in another. ``--choose`` trains with seed 0 and
evaluates on the tenth that no figure uses; without it, seeds 1, 2, … are evaluated on ``val``.
Finished runs are recorded in ``OUT/recipes.json``; run the same command again to continue.
"""

from __future__ import annotations

import json
from typing import Any

from peer_methods import SIMCLR_COLORS
from peers import Comparison, shared_options

from pirl_plugin.system.files import write_json

# Setting → method, batch, learning rate for a batch of 32 images (scaled with the batch, Goyal et
# al. 2017), and arguments that differ from the method's own.
RECIPES: dict[str, dict[str, Any]] = {
    "rate 0.00375": {"name": "pirl_jigsaw", "batch": 32, "rate": 0.00375},
    "rate 0.03": {"name": "pirl_jigsaw", "batch": 32, "rate": 0.03},
    "rate 0.06": {"name": "pirl_jigsaw", "batch": 32, "rate": 0.06},
    "rate 0.12": {"name": "pirl_jigsaw", "batch": 32, "rate": 0.12},
    "rate 0.06, batch 64": {"name": "pirl_jigsaw", "batch": 64, "rate": 0.06},
    "rate 0.06, batch 128": {"name": "pirl_jigsaw", "batch": 128, "rate": 0.06},
    "rate 0.06, λ 0.5": {
        "name": "pirl_jigsaw",
        "batch": 32,
        "rate": 0.06,
        "lambda_invariance": 0.5,
    },
    "rate 0.06, MLP heads": {
        "name": "pirl_jigsaw",
        "batch": 32,
        "rate": 0.06,
        "hidden_dim": 512,
    },
    "rate 0.06, SimCLR's colors": {
        "name": "pirl_jigsaw",
        "batch": 32,
        "rate": 0.06,
        **SIMCLR_COLORS,
    },
    "NPID, rate 0.03": {"name": "npid", "batch": 32, "rate": 0.03},
    "NPID, rate 0.06": {"name": "npid", "batch": 32, "rate": 0.06},
}


def main() -> None:
    """Run whatever is missing in ``recipes.json``."""
    parser = shared_options(__doc__)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--choose", action="store_true", help="use seed 0, on the training images")
    options = parser.parse_args()

    comparison = Comparison(options)
    file = options.out / "recipes.json"
    content: dict[str, Any] = {"setting": comparison.about(), "runs": []}
    if file.is_file():
        content = json.loads(file.read_text("utf-8"))
    options.out.mkdir(parents=True, exist_ok=True)
    measured_on = "tenth" if options.choose else "val"
    test = comparison.tenth if options.choose else comparison.test
    for seed in [0] if options.choose else options.seeds:
        for recipe in options.recipes:
            key = {"recipe": recipe, "seed": seed, "measured_on": measured_on}
            if any(key.items() <= row.items() for row in content["runs"]):
                continue
            settings = {"seed": seed, "epochs": options.epochs, "test": test, **RECIPES[recipe]}
            content["runs"].append({**comparison.run(**settings), **key})
            write_json(file, content)
            print(json.dumps(content["runs"][-1]), flush=True)


if __name__ == "__main__":
    main()
