"""The class ``Kinetics400``, which Classy Vision imports from torchvision."""

from __future__ import annotations

import types


def alias_kinetics400(module: types.ModuleType) -> None:
    """Broke: torchvision 0.15 renamed ``Kinetics400`` to ``Kinetics``.

    ``classy_vision.dataset`` imports the old name, so no module of the host can be imported.
    """
    from torchvision.datasets import kinetics

    if not hasattr(kinetics, "Kinetics400"):
        kinetics.Kinetics400 = kinetics.Kinetics
