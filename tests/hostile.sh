#!/bin/sh
# Heavy queries against a daemon of its own while small queries and ingest are measured beside them;
# prints the table of docs/performance.md.
#
#   tests/hostile.sh [--quick] [--seconds N] [--clients N] [--data DIR] [--only TEXT]
set -eu
cd "$(dirname "$0")/.."
exec cargo bench --locked --quiet --bench hostile -- "$@"
