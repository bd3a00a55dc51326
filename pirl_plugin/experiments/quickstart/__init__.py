"""The quickstart: pre-training, evaluation and report in minutes."""
