#!/bin/bash
# Tests the Debian package in a fresh chroot, and the root file system of the container in another one: installed, started, upgraded
# over a store of the version before, removed, purged. systemd does not run there: the command of the unit is run as its user.
# Needs root, curl and Debian's archive; installs debootstrap, and cargo-deb in target/tools, if they are missing.
#
#   packaging/test.sh [path/to/tsdb] [path/to/static/tsdb]
#
# The second program is for the container. Without it, the first one is used together with its libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "packaging: SKIPPED: needs root"; exit 0; }
if ! command -v debootstrap >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap >/dev/null || true
fi
packaging/tools.sh cargo-deb || true
PATH=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools/bin"):$PATH
for tool in debootstrap cargo-deb curl; do
    command -v $tool >/dev/null || { echo "packaging: SKIPPED: $tool is missing"; exit 0; }
done
if [ $# -gt 0 ]; then program=$(realpath "$1"); else
    cargo build --quiet --locked --bin tsdb
    program=$(realpath "${CARGO_TARGET_DIR:-target}/debug/tsdb")
fi
static=${2:+$(realpath "$2")}
target=$(realpath "${CARGO_TARGET_DIR:-target}")
work=$target/package-test
mkdir -p "$work"

# 1: two packages of one program, and a chroot. The download is kept for the next run.
if [ ! -f "$work/base.tar" ]; then
    rm -rf "$work/base"
    debootstrap --variant=minbase bookworm "$work/base" >"$work/debootstrap.log" 2>&1 ||
        { tail -5 "$work/debootstrap.log"; echo "packaging: SKIPPED: no chroot"; exit 0; }
    tar -C "$work/base" -cf "$work/base.tar.new" . && mv "$work/base.tar.new" "$work/base.tar"
    rm -rf "$work/base"
fi
packaging/build.sh --binary "$program" --version 0.0.9-1 deb
packaging/build.sh --binary "$program" deb
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
rm -rf "$work/root" "$work/image"
mkdir -p "$work/root" "$work/image"
tar -C "$work/root" -xf "$work/base.tar"
cp "$target/dist/saltern_0.0.9-1_amd64.deb" "$target/dist/saltern_$version-1_amd64.deb" "$work/root/tmp/"
rm "$target/dist/saltern_0.0.9-1_amd64.deb"

# 2: the rest in mounts, processes and a network of its own, so that nothing is left and port 4242 is free.
PROGRAM=$program STATIC=$static VERSION=$version WORK=$work \
    unshare --mount --net --pid --fork --kill-child bash packaging/test_chroot.sh
