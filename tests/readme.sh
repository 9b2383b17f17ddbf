#!/bin/bash
# Runs the shell blocks of the README (up to "HBase") and of the users' pages below literally and in order, in a fresh home and a
# fresh copy of the files they name, and checks what they print. Only the build is replaced: the program
# given as the argument, or a debug build of this tree, is put on the PATH.
#
#   tests/readme.sh [path/to/tsdb]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
if [ $# -gt 0 ]; then program=$(realpath "$1"); else
    cargo build --quiet --locked
    program=$(realpath "${CARGO_TARGET_DIR:-target}/debug/tsdb")
fi
# The quick start of tests/secure.sh uses the port for some seconds.
for attempt in $(seq 60); do
    (exec 3<>/dev/tcp/127.0.0.1/4242) 2>/dev/null || break
    if [ "$attempt" = 60 ]; then
        echo "readme: port 4242, which the README uses, is taken: skipped"
        exit 0
    fi
    sleep 1
done
work=$(mktemp -d)
daemon=
finish() {
    status=$?
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    [ $status = 0 ] || { echo "readme: FAILED"; cat "$work"/*.log 2>/dev/null || true; }
    rm -rf "$work"
}
trap finish EXIT
mkdir -p "$work/bin" "$work/tree/tests/data"
ln -s "$program" "$work/bin/tsdb"
cp -r "$root/tests/data/import" "$work/tree/tests/data/"
export PATH=$work/bin:$PATH
cd "$work/tree"

# Shell blocks of a page before a heading, one file each: block-PAGE-NN. Fails unless there are COUNT of them.
blocks() { # FILE PAGE COUNT [HEADING]
    awk -v out="$work/block-$2" -v heading="${4:-}" '
        heading != "" && $0 == heading { exit }
        /^```(sh|bash)$/ { n++; inside = 1; next }
        /^```$/ { inside = 0 }
        inside { print > sprintf("%s-%02d", out, n) }
    ' "$root/$1"
    found=$(find "$work" -name "block-$2-*" | wc -l)
    [ "$found" = "$3" ] || { echo "readme: $1 has $found blocks, not $3"; exit 1; }
}
blocks README.md readme 4 "## HBase"
blocks docs/start.md start 2
blocks docs/queries.md queries 4
blocks docs/backup.md backup 1

expect() { # FILE TEXT...: each text is in the file
    for text in "${@:2}"; do
        grep -qF -- "$text" "$1" || { echo "readme: $1 lacks: $text"; cat "$1"; exit 1; }
    done
}
run() { # BLOCK
    echo "readme: $1: $(head -1 "$work/block-$1")"
    bash -euo pipefail "$work/block-$1" >"$work/out-$1.log" 2>&1 || { echo "readme: block $1 failed"; exit 1; }
}

# 1: the build, replaced, and the daemon, in the background.
expect "$work/block-readme-01" "cargo install --locked --path ." "tsdb tsd"
grep -v '^cargo ' "$work/block-readme-01" >"$work/start"
[ "$(cat "$work/start")" = "tsdb tsd" ] || { echo "readme: the start is more than one command"; exit 1; }
tsdb tsd 2>"$work/daemon.log" &
daemon=$!
for _ in $(seq 300); do
    grep -q "ready to serve" "$work/daemon.log" && break
    kill -0 "$daemon" || exit 1
    sleep 0.1
done
expect "$work/daemon.log" "starting" "version=" "ready to serve" "open http://127.0.0.1:4242/"

# 2: the puts, and those with each netcat there is.
run readme-02
expect "$work/out-readme-02.log" "204 No Content"
for nc in "nc -q 1" "nc.traditional -q 1" "nc.openbsd -q 1"; do
    command -v "${nc%% *}" >/dev/null || continue
    echo "readme: $nc"
    printf 'put nc.works %s 1 nc=%s\nexit\n' "$(date +%s)" "${nc%% *}" | timeout 20 $nc localhost 4242
    curl -sg "localhost:4242/api/query?start=1h-ago&m=sum:nc.works{nc=${nc%% *}}" >"$work/nc.log"
    expect "$work/nc.log" '"metric":"nc.works"'
done
# 3: one average of one instant, then each host.
run readme-03
expect "$work/out-readme-03.log" ':0.6' '"host":"web01"' '"host":"web02"' ':0.5' ':0.7'
# 4: import and chart through the daemon.
run readme-04
expect "$work/out-readme-04.log" "Total: imported 120 data points" \
    "sys.load{host=web01}" "sys.load{host=web02}" "00:30"
# Start: a put, then import, query and metrics through the daemon.
run start-01
expect "$work/out-start-01.log" "204 No Content"
run start-02
expect "$work/out-start-02.log" "Total: imported 60 data points" \
    "sys.load 1767225600000 0.500000 {host=web01}" "process_start_time_seconds" "tsd_build_info"
# The rest: expressions, last points, look-up, plans, lists and snapshots.
for block in "$work"/block-queries-* "$work"/block-backup-*; do
    n=${block#"$work"/block-}
    run "$n"
    if grep -q '"error"' "$work/out-$n.log"; then echo "readme: block $n"; cat "$work/out-$n.log"; exit 1; fi
done
tsdb version >"$work/version.log"
expect "$work/version.log" "Saltern "
# The tools on the directory, without a daemon, and on the restored one.
kill "$daemon" && wait "$daemon"
daemon=
tsdb query 2026/01/01 2026/01/02 sum sys.load host=web01 >"$work/query.log"
expect "$work/query.log" "sys.load 1767225600000 0.500000 {host=web01}"
tsdb query --data ./tsdb-restored 2026/01/01 2026/01/02 sum sys.load host=web01 >"$work/restored.log"
expect "$work/restored.log" "sys.load 1767225600000 0.500000 {host=web01}"
echo "readme: every block works"
