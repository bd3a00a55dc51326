"""The quickstart's report: one HTML file, nothing loaded from outside.

Pictures are embedded as PNG and plots as SVG, each small enough for a phone. The words are in
``report.html.j2``; those that depend on the outcome are chosen here.
"""

from __future__ import annotations

import base64
import datetime
import importlib.metadata
import io
import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import cosine_similarity

from pirl_plugin import __version__
from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config
from pirl_plugin.evaluation.features import centre_crop
from pirl_plugin.evaluation.knn import nearest_neighbors
from pirl_plugin.evaluation.measures import LINE_KEY
from pirl_plugin.evaluation.pretext_model import load_pretext_model
from pirl_plugin.files import atomic_write, read_json_lines
from pirl_plugin.images.decode import decode_image
from pirl_plugin.quickstart.run import Data, Split, knn_by_class
from pirl_plugin.views.pixels import image_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from torch import Tensor

_SHOWN, _NEIGHBORS, _PICTURE = 6, 6, 112
_COMPARED = 256  # images of the distributions of cosines
_BLUE, _GREY = "#2457c5", "#8b929b"
_MEASURES = {  # of the memory bank: title, and what the dashed line is
    "knn_top1": ("kNN in the memory bank, %", "most frequent class"),
    "effective_rank": ("Effective rank of the memory bank", "maximum"),
    "cos_f_m": ("Cosine of f(image) and its bank row", "rows of other images"),
    "cos_g_m": ("Cosine of g(jigsaw) and the image's bank row", "rows of other images"),
}


def write_report(
    out: Path,
    data: Data,
    checkpoints: dict[str, Path],
    results: dict[str, Any],
    train: Split,
    test: Split | None,
) -> None:
    """Write ``report.html`` into ``out`` from a finished run.

    Args:
        out: the run's folder.
        data: the images.
        checkpoints: of ``random`` and ``pirl``.
        results: as in ``results.json``.
        train: features of the training images.
        test: features of the test images, where there are labels.
    """
    config = read_config(out / "pretrain" / RUN_CONFIG)
    lines = read_json_lines(out / "pretrain" / "stdout.json")
    losses = sorted({int(e["iter"]): float(e["loss"]) for e in lines}.items())
    measures = {int(e["ep"]) + 1: e[LINE_KEY] for e in lines if LINE_KEY in e}
    model = load_pretext_model(checkpoints["pirl"])
    steps_per_epoch = losses[-1][0] / results["epochs"]
    context = {
        "results": results,
        "done": _what_was_done(data, results, config, test is not None),
        "accuracy": accuracy_facts(results, Counter(test.classes)) if test else None,
        "by_class": _class_plot(train, test) if test else None,
        "loss": loss_facts(losses),
        "plots": [_loss_plot(losses, steps_per_epoch), *_measure_plots(measures)],
        "cosines": _cosine_plot(model, test or train, results["seed"]),
        "jigsaws": _jigsaws(train, results["seed"], model),
        "neighbors": _neighbors(train, test),
        "settings": _settings(data, config, test),
        "commands": _next_commands(data, checkpoints["pirl"], out),
    }
    with atomic_write(out / "report.html") as file:
        file.write(render(context).encode())


def render(context: dict[str, Any]) -> str:
    """The page as text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return pages.get_template("report.html.j2").render(context)


def accuracy_facts(results: dict[str, Any], classes: Counter[str]) -> dict[str, Any]:
    """Accuracies, their 95 % intervals, and the verdict that follows from kNN's.

    The gain's interval is that of two independent shares (normal approximation).

    Args:
        results: as in ``results.json``.
        classes: test images of each class; the most frequent gives the chance level.

    Example:
        >>> same = {"knn_top1": 30.0, "linear_top1": 40.0}
        >>> accuracy_facts({"random": same, "pirl": same}, Counter("aab"))["kind"]
        'open'
    """
    count, rows = classes.total(), []
    for key, title in (("knn_top1", "kNN"), ("linear_top1", "Linear classifier")):
        random, pirl = results["random"][key], results["pirl"][key]
        variance = [p / 100 * (1 - p / 100) / count for p in (random, pirl)]
        errors = [196 * math.sqrt(v) for v in (*variance, sum(variance))]
        rows.append({"title": title, "random": random, "pirl": pirl, "gain": pirl - random,
                     "errors": errors})  # fmt: skip
    gain, error = rows[0]["gain"], rows[0]["errors"][2]
    found = f"{gain:+.1f} ± {error:.1f} points".replace("-", "−")
    if gain > error:
        kind, verdict = "good", f"PIRL learnt: its features beat random weights by {found} (kNN)."
    elif gain < -error:
        kind, verdict = "bad", f"PIRL's features are worse than random weights: {found} (kNN)."
    else:
        kind = "open"
        verdict = (
            f"This run does not show that PIRL learnt: {found} over random weights (kNN), which "
            "may be chance. Train for more epochs or on more images."
        )
    chance = 100 * max(classes.values()) / count
    return {"rows": rows, "kind": kind, "verdict": verdict, "chance": chance, "count": count}


def loss_facts(losses: Sequence[tuple[int, float]]) -> str:
    """How the loss went, in words; the ends are means of a tenth of the curve.

    Example:
        >>> loss_facts([(0, 6.0), (1, 7.0)])
        'The loss rose from 6.00 to 7.00: it does not show learning.'
    """
    values = np.array([loss for _, loss in losses])
    lost, values = int((~np.isfinite(values)).sum()), values[np.isfinite(values)]
    if not len(values):
        return "No logged loss is finite: the run diverged."
    part = max(1, len(values) // 10)
    first, last, peak = values[:part].mean(), values[-part:].mean(), values.max()
    text = f"from {first:.2f} to {last:.2f}"
    if last > first + 0.01:
        text = f"The loss rose {text}: it does not show learning."
    elif last > first - 0.01:
        text = f"The loss did not change ({text})."
    else:
        text = f"The loss fell {text}."
        if peak > first + 0.2:
            text += (
                f" It rose to {peak:.2f} at first, because the memory bank begins with the "
                "untrained network's embeddings, from which the network moves away."
            )
    return text + (f" {lost} logged losses are not finite." if lost else "")


def _what_was_done(
    data: Data, results: dict[str, Any], config: dict[str, Any], tested: bool
) -> str:
    depth = config["MODEL"]["TRUNK"]["PIRL_RESNET"]["DEPTH"]
    epochs = f"{results['epochs']} epoch{'s' if results['epochs'] > 1 else ''}"
    labels = "labels were used for the test only" if tested else "there were no labels to test with"
    return f"A ResNet-{depth} saw {data.num_train:,} images without labels for {epochs}; {labels}."


def _settings(data: Data, config: dict[str, Any], test: Split | None) -> dict[str, str]:
    loss, view = config["LOSS"]["pirl_loss"], config["DATA"]["TRAIN"]["TRANSFORMS"][0]
    network = config["MODEL"]["TRUNK"]["PIRL_RESNET"]
    rate = config["OPTIMIZER"]["param_schedulers"]["lr"]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "vissl")]
    return {
        "Data": f"{data.num_train:,} images in {data.train}"
        + (f"; {len(test.paths):,} test images in {test.folder}" if test else ""),
        "Network": f"ResNet-{network['DEPTH']}, width {network['WIDTH_MULTIPLIER']:g}",
        "Views": f"image of {view['image_size']} px, nine patches of {view['patch_size']} px",
        "Loss": f"{loss['estimator']}, λ = {loss['lambda_invariance']:g}, "
        f"τ = {loss['temperature']:g}, N = {loss['num_negatives']:,}",
        "Optimiser": f"SGD, learning rate {rate.get('start_value')} ({rate['name']}), "
        f"batch {config['DATA']['TRAIN']['BATCHSIZE_PER_REPLICA']}",
        "Engine": "VISSL, config=pretrain/pirl/quick_jigsaw",
        "Evaluation": "frozen res5 features: VISSL's linear benchmark; kNN, k = 20, cosine",
        "Seed": str(config["SEED_VALUE"]),
        "Versions": ", ".join([f"pirl_plugin {__version__}", *versions]),
        "Date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _next_commands(data: Data, checkpoint: Path, out: Path) -> dict[str, str]:
    """What to do next → a command with this run's paths."""
    labelled = data.train.parent if data.val else "DIR"
    return {
        "The same on your own images": f"pirl-plugin quickstart --data DIR --out {out}_own",
        "A longer training on your own images": "pirl-plugin train "
        "config=pretrain/pirl/own_images config.DATA.TRAIN.DATA_PATHS=[DIR]",
        "kNN accuracy on other labelled images": f"pirl-plugin knn --checkpoint {checkpoint} "
        f"--data {labelled}",
        "Linear benchmark on other labelled images": "pirl-plugin linear --checkpoint "
        f"{checkpoint} --data {labelled}",
        "The network as a file for other programs": f"pirl-plugin export --help  # {checkpoint}",
    }


def _loss_plot(losses: Sequence[tuple[int, float]], steps_per_epoch: float) -> str:
    steps, values = np.array(losses).T

    def draw(axes: Axes) -> None:
        axes.plot(steps / steps_per_epoch, values, color=_BLUE, lw=1.2)

    return _svg("Loss", "epoch", draw)


def _measure_plots(measures: dict[int, dict[str, dict[str, float]]]) -> list[str]:
    """A plot of each measure that every measured epoch has."""
    plots, epochs = [], sorted(measures)
    for name, (title, dashed) in _MEASURES.items():
        if not epochs or any(name not in measures[epoch] for epoch in epochs):
            continue
        lines = {key: [measures[e][name][key] for e in epochs] for key in ("value", "chance")}

        def draw(axes: Axes, lines: dict[str, list[float]] = lines, dashed: str = dashed) -> None:
            axes.plot(epochs, lines["value"], color=_BLUE, lw=1.8, marker=".")
            axes.plot(epochs, lines["chance"], color=_GREY, ls="--", label=dashed)
            axes.legend(frameon=False, fontsize=8)

        plots.append(_svg(title, "epoch", draw))
    return plots


def _cosine_plot(model: Any, split: Split, seed: int) -> dict[str, Any] | None:
    """Cosines of f(image) with g(jigsaw) of the same image, and of one half the images away.

    BatchNorm's statistics are those of images and of patches apart, as the loss saw them.
    """
    chosen = [path for _, path in _spread(split.paths, _COMPARED)]
    if len(chosen) < 2:
        return None
    drawn = [model.views_of(_pixels(split, path), row, 1, seed) for row, path in enumerate(chosen)]
    images, versions = (torch.stack(part) for part in zip(*drawn, strict=True))
    own = model.with_own_statistics(images, versions[:, 0])
    f = torch.cat([own.embed_images(part) for part in images.split(64)])
    g = torch.cat([own.embed_transformed(part) for part in versions[:, 0].split(64)])
    cosines = {
        "own jigsaw": cosine_similarity(f, g),
        "another image's jigsaw": cosine_similarity(f, g.roll(len(chosen) // 2, dims=0)),
    }

    def draw(axes: Axes) -> None:
        for (name, values), colour in zip(cosines.items(), (_BLUE, _GREY), strict=True):
            axes.hist(values.numpy(), 40, color=colour, alpha=0.6, label=name)
        axes.legend(frameon=False, fontsize=8)
        axes.set_yticks([])

    same, other = (values.mean().item() for values in cosines.values())
    return {"svg": _svg("Cosine of f(image) and g(jigsaw)", "cosine", draw, whole=False),
            "same": f"{same:.2f}", "other": f"{other:.2f}"}  # fmt: skip


def _class_plot(train: Split, test: Split) -> str:
    """Plot the kNN accuracy of each class by both networks; at most 20 classes, by gain."""
    random, pirl = (knn_by_class(train, test, name)[1] for name in ("random", "pirl"))
    names = sorted(pirl, key=lambda name: random[name] - pirl[name])[:20][::-1]
    rows = np.arange(len(names))

    def draw(axes: Axes) -> None:
        axes.barh(rows + 0.2, [pirl[n] for n in names], 0.38, color=_BLUE, label="PIRL")
        axes.barh(rows - 0.2, [random[n] for n in names], 0.38, color=_GREY, label="random")
        axes.set_yticks(rows, [name[:20] for name in names])
        axes.legend(frameon=False, fontsize=8, loc="lower right")

    return _svg("kNN top-1 by class", "%", draw, height=1.2 + 0.3 * len(names))


def _jigsaws(train: Split, seed: int, model: Any) -> list[dict[str, str]]:
    """What the network saw of a few images: the image, its view, its shuffled patches."""
    samples = []
    for row, path in _spread(train.paths, 3):
        pixels = _pixels(train, path)
        drawn = model.views(pixels, image_generator(seed, 0, row))
        grid = torch.nn.functional.pad(drawn["patches"], (1, 1, 1, 1), value=255)  # (9, 3, h, w)
        _, _, high, wide = grid.shape
        grid = grid.reshape(3, 3, 3, high, wide).permute(2, 0, 3, 1, 4)
        samples.append(
            {
                "image": _png(pixels),
                "view": _png(drawn["images"]),
                "patches": _png(grid.reshape(3, 3 * high, 3 * wide)),
            }
        )
    return samples


def _neighbors(train: Split, test: Split | None) -> list[dict[str, Any]]:
    """Nearest neighbours of a few images by both networks."""
    query = test or train
    rows, found = [row for row, _ in _spread(query.paths, _SHOWN)], []
    near = {n: nearest_neighbors(query.features[n][rows], train.features[n],
                                 min(_NEIGHBORS + 1, len(train.paths)))
            for n in ("pirl", "random")}  # fmt: skip
    for i, row in enumerate(rows):
        sample: dict[str, Any] = {
            "image": _png(_picture(query, query.paths[row])),
            "label": query.classes[row] if test else "",
        }
        for name, ranked in near.items():
            # Without test images the query is its own first neighbour.
            chosen = ranked[i, :_NEIGHBORS] if test else ranked[i, 1:]
            sample[name] = [
                {"image": _png(_picture(train, train.paths[r])), "label": train.classes[r]}
                for r in chosen.tolist()
            ]
        found.append(sample)
    return found


def _spread(items: list[str], count: int) -> list[tuple[int, str]]:
    """``count`` items with their positions, evenly spread."""
    count = min(count, len(items))
    rows = [(2 * i + 1) * len(items) // (2 * count) for i in range(count)]
    return [(row, items[row]) for row in rows]


def _pixels(split: Split, path: str) -> Tensor:
    return decode_image((split.folder / path).read_bytes())


def _picture(split: Split, path: str) -> Tensor:
    return centre_crop(_pixels(split, path), _PICTURE)


def _png(image: Tensor) -> str:
    """The ``data:`` address of a uint8 (3, H, W) picture."""
    stream = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _svg(title: str, xlabel: str, draw: Any, whole: bool = True, height: float = 2.6) -> str:
    """One plot, 4.2 inches wide, as an ``<svg>`` element whose words stay text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.size": 9}):
        figure = Figure(figsize=(4.2, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        draw(axes)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel(xlabel)
        axes.spines[["top", "right"]].set_visible(False)
        if whole:
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    return svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
