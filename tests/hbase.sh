#!/bin/sh
# Everything against a real HBase, which is started and stopped here; needs a JDK 17.
#
#   tests/hbase.sh [scenario...]     all without an argument: see tests/hbase/main.rs
set -eu
cd "$(dirname "$0")/.."
# The whole workspace's features, so that nothing is built twice.
exec cargo test --workspace --locked --features saltern/hbase --test hbase -- "$@"
