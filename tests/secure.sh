#!/bin/bash
# Daemons and tools on secured HBase, which is started and stopped here; needs a JDK 17, and Kerberos with its key distribution centre,
# which cluster/install-kdc.sh installs where it can.
#
#   tests/secure.sh [--all] [text...]     rows of the matrix: see tests/secure/main.rs
set -eu
cd "$(dirname "$0")/.."
if ! installed=$(cluster/install-kdc.sh 2>&1); then
    echo "secure: skipped, Kerberos cannot be installed: $(tail -n 1 <<<"$installed")"
    exit 0
fi
exec tests/programs.sh run saltern/secure run "$@"
