#!/bin/sh
# Tests on a real HBase, which is started and stopped here; needs a JDK 17.
#
#   tests/hbase.sh [scenario...]     all scenarios but cluster_kills if none is named, no-SCENARIO leaves one out: see tests/hbase/main.rs
set -eu
cd "$(dirname "$0")/.."
# With the features of the whole workspace, to reuse the builds of other tests.
exec cargo test --workspace --locked --features saltern/hbase --test hbase -- "$@"
