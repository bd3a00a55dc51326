#!/usr/bin/env bash
# Set everything up, pre-train PIRL-jigsaw through VISSL's engine, evaluate it, write a report:
#
#   bash extra_scripts/quickstart.sh [--data DIR] [--out DIR] [--seed N] [--epochs N]
#
# DIR holds train/<class>/*.jpg and val/<class>/*.jpg, or just images; without --data a sample data
# set is drawn. The results go to runs/quickstart: report.html, results.json, all logs.
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
exec "$PYTHON" -m pirl_plugin quickstart "$@"
