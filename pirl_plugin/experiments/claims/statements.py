"""The paper's claims, and some of this project's, as differences that are positive if they hold."""

from __future__ import annotations

from pirl_plugin.experiments.claims.analysis_claims import ANALYSIS
from pirl_plugin.experiments.claims.comparison_claims import COMPARISONS

CLAIMS = (*ANALYSIS, *COMPARISONS)
