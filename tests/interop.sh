#!/bin/sh
# The daemon and a real OpenTSDB 2.4.1 on the same HBase and on the same tables, which are started and stopped
# here; needs a JDK 17 and says so where there is none. Ten minutes at most with the defaults.
#
#   tests/interop.sh [option...]     options: see tests/interop/main.rs
set -eu
cd "$(dirname "$0")/.."
# With the features of the whole workspace, to reuse the builds of other tests.
exec cargo test --workspace --locked --features saltern/hbase --test interop -- "$@"
