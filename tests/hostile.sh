#!/bin/sh
# Measures small queries and ingest while a daemon executes heavy queries; prints the table of
# docs/measurements/hostile.md.
#
#   tests/hostile.sh [--quick] [--seconds N] [--clients N] [--data DIR] [--only TEXT]
set -eu
cd "$(dirname "$0")/.."
exec cargo bench --locked --quiet --bench steady -- --heavy "$@"
