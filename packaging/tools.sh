#!/bin/bash
# Installs cargo-deb and cargo-generate-rpm, which make the packages, in target/tools/bin, unless these versions are there.
#
#   packaging/tools.sh [NAME...]    default: both; cargo-deb takes two CPU minutes, cargo-generate-rpm five, once
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
versions=(cargo-deb@3.8.0 cargo-generate-rpm@0.21.1)
for tool in "${versions[@]}"; do
    name=${tool%@*}
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    if [ -x "$tools/bin/$name" ] && [[ "$("$tools/bin/$name" --version)" == *" ${tool#*@}" ]]; then continue; fi
    # Its own target directory, so that flags of this tree's builds do not count.
    env -u RUSTFLAGS CARGO_TARGET_DIR="$tools/build" cargo install --locked --quiet --root "$tools" "$tool"
    rm -rf "$tools/build"
done
