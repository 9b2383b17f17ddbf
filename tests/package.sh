#!/bin/sh
# Packages the HBase crates as they would be published, builds each package, and runs the tests inside the packages.
#
#   tests/package.sh [--tests]     without --tests the packages are built only
#
# Nothing is uploaded. The packages build on each other, so that all are packaged together.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
packages="hbase-rs-protobuf hbase-gss hbase-rs hbase-fake"
selected=$(for package in $packages; do printf -- '--package %s ' "$package"; done)

# shellcheck disable=SC2086
cargo publish --dry-run --allow-dirty --locked $selected
[ "${1:-}" = --tests ] || exit 0

# The packages in a workspace of their own, where they find each other and nothing of this repository.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    echo '[workspace]'
    echo 'resolver = "3"'
    echo 'members = ["crates/*"]'
    echo '[patch.crates-io]'
    for package in $packages; do
        echo "$package = { path = \"crates/$package\" }"
    done
} >"$work/Cargo.toml"
cp Cargo.lock "$work/Cargo.lock"
mkdir "$work/crates"
for package in $packages; do
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "crates/$package/Cargo.toml" | head -n 1)
    # Its folder depends on the version of cargo.
    crate=$(find "$target/package" -name "$package-$version.crate" | head -n 1)
    tar -xf "$crate" -C "$work/crates"
    mv "$work/crates/$package-$version" "$work/crates/$package"
    rm -f "$work/crates/$package/Cargo.lock"
done
export CARGO_TARGET_DIR="$(cd "$target" && pwd)/packages"
manifest=$work/Cargo.toml
cargo test --manifest-path "$manifest" --workspace --all-features --quiet
# Here no dependency of the tests adds features.
cargo test --manifest-path "$manifest" --package hbase-rs --no-default-features --lib --quiet
