#!/bin/sh
# Daemons and tools on secured HBase, which is started and stopped here; needs a JDK 17. cluster/install-kdc.sh installs the key
# distribution centre.
#
#   tests/secure.sh [--all] [text...]     rows of the matrix: see tests/secure/main.rs
set -eu
cd "$(dirname "$0")/.."
exec tests/programs.sh run saltern/secure run "$@"
