#!/bin/sh
# Real clients of OpenTSDB: each is installed from its registry into a temporary directory and runs against a
# daemon. Its points are read back and compared with what it sent; its queries are compared with the answers of a
# real OpenTSDB 2.4.1 where there is a JDK 17, else with recorded ones. A client whose registry cannot be
# reached is a line that says so.
#
#   tests/clients.sh [option...]     options: tests/clients.sh --help
#
# Needs Python 3.9 or later; npm and apt-get for the clients that they install. TSDB and CLUSTER name other binaries
# than those of a debug build.
set -eu
cd "$(dirname "$0")/.."
if ! command -v python3 >/dev/null; then
    echo "clients: skipped, there is no python3"
    exit 0
fi
if [ -z "${TSDB:-}" ]; then
    cargo build --quiet --locked --bin tsdb
    TSDB=target/debug/tsdb
fi
export TSDB
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/clients/main.py "$@"
