#!/bin/bash
# Every test: units, the daemon and its tools, a real HBase and OpenTSDB, a secured HBase, the page in a real browser, examples of the
# documentation, the README, fuzz targets.
#
#   tests/all.sh
#
# Everything is built once; then three lanes run concurrently, since most tests wait for timers, syncs and other processes. A step
# without its Java, browser or nightly compiler says so. The last lines list the time of each step.
set -u
cd "$(dirname "$0")/.."
exec </dev/null
. tests/steps.sh
trap finish EXIT
trap 'trap - INT TERM; kill 0; exit 1' INT TERM

[ -n "${PROGRAMS:-}" ] || build_tests || exit 1

step "HAProxy" timeout 600 tests/haproxy.sh

units() {
    export RUST_TEST_THREADS=$(($(nproc) * 2))
    step "tests" timeout 4500 tests/programs.sh all
    step "secured HBase" timeout 1800 tests/secure.sh
}
servers() {
    step "HBase and OpenTSDB" timeout 4500 tests/hbase.sh
}
surfaces() {
    step "README" timeout 600 tests/readme.sh target/debug/tsdb
    step "packages" timeout 1800 packaging/test.sh target/debug/tsdb
    step "page" timeout 3600 tests/page.sh
    step "fuzz targets" timeout 4500 fuzz/run.sh 3
    step "examples" timeout 2400 cargo test --workspace --doc --locked --quiet
}
units &
servers &
surfaces &
wait
