#!/bin/sh
# The daemon and a real OpenTSDB 2.4.1 on the same HBase and on the same tables, which are started and stopped
# here. Needs a JDK 17 and reports a missing one. Ten minutes at most with the defaults.
#
#   tests/interop.sh [option...]     options: see tests/hbase/interop.rs
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- --rounds 1
exec tests/hbase.sh interop "$@"
