#!/bin/sh
# Tests on a real HBase, which is started and stopped here; needs a JDK 17.
#
#   tests/hbase.sh [scenario...]     all scenarios of suite.rs but the NAMED ones if none is named, no-SCENARIO leaves one out: see tests/hbase/main.rs
set -eu
cd "$(dirname "$0")/.."
exec tests/programs.sh run saltern/hbase run "$@"
