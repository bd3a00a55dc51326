"""The measures that a run's log has of each epoch, for the report page."""

from __future__ import annotations

from pathlib import Path

from pirl_plugin.evaluation.bank_measures import LINE_KEY
from pirl_plugin.quickstart.page.plots import Curves, monitor_svg
from pirl_plugin.utils.json_lines import read_json_lines

Measures = tuple[int, dict[str, tuple[float, float]]]
"""An epoch, from 1, and of each measure its value and its chance level."""

_TITLES = {
    "knn_top1": "kNN in the bank, %",
    "effective_rank": "Effective rank",
    "cos_f_m": "cos(f, m)",
    "cos_g_m": "cos(g, m)",
}


def read_monitor(log: Path) -> list[Measures]:
    """Read them from the host's ``stdout.json``; a resumed run's later values win."""
    found = {}
    for entry in read_json_lines(log):
        if LINE_KEY in entry:
            found[int(entry["ep"]) + 1] = {
                name: (measure["value"], measure["chance"])
                for name, measure in entry[LINE_KEY].items()
            }
    return sorted(found.items())


def monitor_facts(monitor: list[Measures]) -> dict[str, object] | None:
    """Curves of the measures that every epoch has, and the last of each in words; None of none."""
    if not monitor:
        return None
    epochs = [epoch for epoch, _ in monitor]
    curves: Curves = {}
    for name, title in _TITLES.items():
        if all(name in measured for _, measured in monitor):
            values, chance = zip(*(measured[name] for _, measured in monitor), strict=True)
            curves[title] = (values, chance)
    last = "; ".join(
        f"{title} {signed(values[-1])} (chance {signed(chance[-1])})"
        for title, (values, chance) in curves.items()
    )
    svgs = [monitor_svg(curves, epochs, size) for size in ("wide", "narrow")]
    return {"svgs": svgs, "last": last, "epoch": epochs[-1]}


def signed(value: float) -> str:
    """Two decimals, with a minus sign as print has it, and none before zero."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")
