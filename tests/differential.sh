#!/bin/sh
# Compares the daemon with a real OpenTSDB 2.4.1, which is started and stopped here on a real HBase; needs a
# JDK 17 and says so where there is none.
#
#   tests/differential.sh [option...]     options: see tests/differential/main.rs
set -eu
cd "$(dirname "$0")/.."
# With the features of the whole workspace, to reuse the builds of other tests.
exec cargo test --workspace --locked --features saltern/hbase --test differential -- "$@"
