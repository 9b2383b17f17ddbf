#!/bin/sh
# Compares the daemon with a real OpenTSDB 2.4.1, which is started and stopped here on a real HBase.
# Needs a JDK 17 and reports a missing one.
#
#   tests/differential.sh [option...]     options: see tests/hbase/differential.rs
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- --seconds 60
exec tests/hbase.sh differential "$@"
