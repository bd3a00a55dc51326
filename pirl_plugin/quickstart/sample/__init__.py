"""Sample images for the quickstart: procedural scenes whose class lies in their structure."""
