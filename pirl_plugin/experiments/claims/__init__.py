"""``pirl-plugin claims``: the paper's claims, measured at a scale that one machine can repeat."""
