#!/bin/sh
# Compares the public API of hbase-rs with the recorded one, which names no type of another crate but those of bytes, tokio and
# futures. Each feature of the crate compiles alone, without warnings.
#
#   tests/public_api.sh     UPDATE_DOCS=1 records the API as it is
set -eu
cd "$(dirname "$0")/.."
for feature in "" zookeeper rustls kerberos snappy lz4 gzip; do
    cargo clippy --quiet --locked --package hbase-rs --lib --no-default-features --features "$feature" -- -D warnings
done
cargo check --quiet --locked --package hbase-rs --all-targets --all-features
# rustdoc's JSON is unstable. Only rustdoc gets the variable, so that no other build is repeated.
rustdoc=$(mktemp)
trap 'rm -f "$rustdoc"' EXIT
printf '#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc "$@"\n' >"$rustdoc"
chmod +x "$rustdoc"
RUSTDOC=$rustdoc cargo rustdoc --quiet --locked --package hbase-rs --lib --all-features -- -Z unstable-options --output-format json
tests/programs.sh run saltern/public_api "$(pwd)/${CARGO_TARGET_DIR:-target}/doc/hbase_rs.json"
