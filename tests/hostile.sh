#!/bin/sh
# Measures small queries and ingest beside heavy queries on a daemon; prints the table of
# docs/performance.md.
#
#   tests/hostile.sh [--quick] [--seconds N] [--clients N] [--data DIR] [--only TEXT]
set -eu
cd "$(dirname "$0")/.."
exec cargo bench --locked --quiet --bench hostile -- "$@"
