#!/bin/sh
# Runs every fuzz target for some seconds, two at a time, from its seeds; new inputs go to a temporary directory.
#
#   fuzz/run.sh [seconds]            30 without an argument; needs a nightly toolchain
#
# Without a nightly toolchain it says so and passes: `cargo test` runs the seeds and changes of them anyway.
set -eu
seconds=${1:-30}
cd "$(dirname "$0")"
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzz: no nightly toolchain; the fuzz targets are left out"
    exit 0
fi
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cdebug-assertions" \
    cargo +nightly build --release --locked --target "$host"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# One target; its whole output is shown only if it fails.
cat >"$work/one.sh" <<'ONE'
set -eu
target=$1
mkdir -p "$WORK/$target/corpus"
if FUZZ_TARGET=$target "$FUZZ" "$WORK/$target/corpus" "seeds/$target" -max_total_time="$SECONDS_EACH" -rss_limit_mb=4096 -timeout=25 \
    -artifact_prefix="$WORK/$target/" -print_final_stats=1 >"$WORK/$target/log" 2>&1; then
    echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$WORK/$target/log") runs"
else
    cat "$WORK/$target/log"
    for input in "$WORK/$target"/crash-* "$WORK/$target"/timeout-* "$WORK/$target"/oom-*; do
        [ -f "$input" ] && { echo "fuzz: input of the failure, base64:"; base64 "$input"; }
    done
    echo "fuzz: $target failed"
    exit 1
fi
ONE
export WORK="$work" FUZZ="target/$host/release/fuzz" SECONDS_EACH="$seconds"
ls seeds | xargs -n 1 -P 2 sh "$work/one.sh"
