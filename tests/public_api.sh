#!/bin/sh
# Compares the public API of hbase-rs with the recorded one; each feature set of the crate compiles alone.
#
#   tests/public_api.sh     UPDATE_DOCS=1 records the API as it is
set -eu
cd "$(dirname "$0")/.."
for features in --no-default-features --all-features; do
    cargo check --quiet --locked --package hbase-rs --all-targets "$features"
done
# rustdoc's JSON is unstable. Only rustdoc gets the variable, so that no other build is repeated.
rustdoc=$(mktemp)
trap 'rm -f "$rustdoc"' EXIT
printf '#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc "$@"\n' >"$rustdoc"
chmod +x "$rustdoc"
RUSTDOC=$rustdoc cargo rustdoc --quiet --locked --package hbase-rs --lib --all-features -- -Z unstable-options --output-format json
tests/programs.sh run saltern/public_api "$(pwd)/${CARGO_TARGET_DIR:-target}/doc/hbase_rs.json"
