#!/bin/bash
# Makes the files of a release in target/dist: tarballs with a static program, .deb and .rpm with a dynamic one, a list of the crates
# (SBOM), and SHA-256 sums. Needs cargo-deb and cargo-generate-rpm (packaging/tools.sh), python3, curl and binutils. For aarch64:
# `rustup target add aarch64-unknown-linux-gnu`, and Debian's gcc-aarch64-linux-gnu and qemu-user-static; without them it says so.
#
#   packaging/build.sh                        everything; a build of the profile `distribution` for each program
#   packaging/build.sh --binary FILE deb      only a .deb, of this program; also: rpm, tarball, sbom
#   packaging/build.sh --version VERSION ...  another version of the .deb, for a test of an upgrade
set -euo pipefail
cd "$(dirname "$0")/.."
binary= kinds=() fast=
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
deb_version=$version-1
while [ $# -gt 0 ]; do
    case $1 in
        --binary) binary=$(realpath "$2") fast=--fast; shift 2 ;;
        --version) deb_version=$2; shift 2 ;;
        tarball | deb | rpm | sbom) kinds+=("$1"); shift ;;
        *) echo "build.sh: unknown argument $1; see the top of $0" >&2; exit 2 ;;
    esac
done
[ ${#kinds[@]} -gt 0 ] || kinds=(tarball deb rpm sbom)
target=${CARGO_TARGET_DIR:-target}
dist=$target/dist
files=target/package
host=x86_64-unknown-linux-gnu
foreign=aarch64-unknown-linux-gnu
export PATH=$PWD/$target/tools/bin:$PATH
mkdir -p "$dist"

# Folding of equal functions is an option of lld, the linker of the host's target.
fold="-C link-arg=-Wl,--icf=all"

wanted() { [[ " ${kinds[*]} " == *" $1 "* ]]; }

# The program of the packages: dynamic, with Kerberos.
if [ -z "$binary" ] && { wanted deb || wanted rpm; }; then
    RUSTFLAGS=$fold cargo build --profile distribution --locked --bin tsdb
    binary=$target/distribution/tsdb
fi

# Fails if a program needs a later glibc than the packages say.
check_glibc() { # PROGRAM
    local newest
    newest=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
    if [ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" != GLIBC_2.34 ]; then
        echo "build.sh: the program needs $newest, the packages say 2.34:" >&2
        objdump -T "$1" | grep "$newest" >&2
        exit 1
    fi
}

# Files that the program itself makes: configuration, completions, manual pages.
make_files() { # PROGRAM [EMULATOR]
    local run=(${2:+"$2"} "$1")
    rm -rf "$files"
    mkdir -p "$files/completions" "$files/man"
    install -m 755 "$1" "$files/tsdb"
    "${run[@]}" config example --data /var/lib/tsdb >"$files/opentsdb.conf"
    "${run[@]}" completions bash >"$files/completions/tsdb"
    "${run[@]}" completions zsh >"$files/completions/_tsdb"
    "${run[@]}" completions fish >"$files/completions/tsdb.fish"
    "${run[@]}" man "$files/man"
}

tarball() { # PROGRAM TARGET LINK [EMULATOR]
    local name=saltern-$version-${2%%-*}-linux-$3
    packaging/smoke.sh "$1" "${4:-}"
    make_files "$1" "${4:-}"
    rm -rf "${dist:?}/$name"
    mkdir -p "$dist/$name/data"
    cp -r "$files"/* LICENSE README.md CHANGELOG.md packaging/saltern.service "$dist/$name/"
    tar --sort=name --owner=0 --group=0 --numeric-owner -C "$dist" -czf "$dist/$name.tar.gz" "$name"
    rm -rf "${dist:?}/$name"
    echo "build.sh: $dist/$name.tar.gz"
}

static_tarball() { # TARGET RUSTFLAGS [EMULATOR]
    RUSTFLAGS="-C target-feature=+crt-static $2" cargo build --profile distribution --locked --bin tsdb --target "$1"
    tarball "$target/$1/distribution/tsdb" "$1" static "${3:-}"
}

if wanted tarball; then
    if [ -n "$binary" ] && [ "$binary" != "$target/distribution/tsdb" ]; then
        tarball "$binary" $host "$(file -b "$binary" | grep -q 'statically\|static-pie' && echo static || echo dynamic)"
    else
        static_tarball $host "$fold"
        if [ -d "$(rustc --print target-libdir --target $foreign)" ] &&
            command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null; then
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc static_tarball $foreign "" qemu-aarch64-static
        else
            echo "build.sh: no program for aarch64: see the top of $0"
        fi
    fi
fi
if wanted deb || wanted rpm; then
    check_glibc "$binary"
    make_files "$binary"
fi
if wanted deb; then
    # A given program is for a test, without strong compression.
    cargo deb --no-build --no-strip --quiet $fast --deb-version "$deb_version" --output "$dist/saltern_${deb_version}_amd64.deb"
    echo "build.sh: $dist/saltern_${deb_version}_amd64.deb"
fi
if wanted rpm; then
    cargo generate-rpm --output "$dist/saltern-$version-1.x86_64.rpm"
    echo "build.sh: $dist/saltern-$version-1.x86_64.rpm"
fi
if wanted sbom; then
    python3 packaging/sbom.py $host >"$dist/saltern-$version.cdx.json"
    echo "build.sh: $dist/saltern-$version.cdx.json"
fi
(cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS)
