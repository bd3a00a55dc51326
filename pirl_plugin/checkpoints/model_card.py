"""The model card of an exported network: how it was trained, what was measured, how to load it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pirl_plugin import __version__

if TYPE_CHECKING:
    from pirl_plugin.checkpoints.training_run import TrainingRun

_PAPER = "[Self-Supervised Learning of Pretext-Invariant Representations](https://arxiv.org/abs/1912.01991)"


def model_card(
    title: str, config: dict[str, Any], lines: str, run: TrainingRun | None, results: list[str]
) -> str:
    """Markdown with the header that hubs of models read.

    Args:
        title: of the network.
        config: its ``config.json``, with timm's name of it and how images are normalised.
        lines: Python that loads it.
        run: how it was trained, if that is known.
        results: a sentence for each measurement.
    """
    if run is None:
        trained = "No configuration was beside the checkpoint: how it was trained is not recorded."
    else:
        rows = [f"| {name} | {value} |" for name, value in run.settings.items()]
        trained = "\n".join(["| setting | value |", "|---|---|", *rows])
    unlabelled = run is not None and not (run.labelled or run.initial_weights)
    tag = "- self-supervised\n" if unlabelled else ""
    learnt = ", learnt without labels" if unlabelled else ""
    method = f" pre-trained with PIRL\n({_PAPER}, Misra and van der Maaten, CVPR 2020)"
    network = f"a network{method if run is not None and run.is_pirl else ''}"
    mean, std = (
        f"({', '.join(map(str, config['pretrained_cfg'][key]))})" for key in ("mean", "std")
    )
    measured = "\n".join(f"- {sentence}" for sentence in results) or "None are recorded."
    return f"""---
tags:
- image-feature-extraction
{tag}- timm
library_name: timm
---

# {title}

Image features{learnt}: the trunk of {network}, without its projection heads and without a
classifier. timm's name of the network is `{config["architecture"]}`. Exported by pirl_plugin
{__version__}.

## Load it

```python
{lines}
```

Images are RGB, scaled to 0 … 1 and normalised with mean {mean} and standard deviation
{std}.

## Training

{trained}

## Results

{measured}

## Licence

The code is under the MIT licence. The weights are under the terms of whoever trained them, and of
the data that they were trained on.
"""
