"""The quickstart: VISSL runs, a report, and sample images."""
