#!/bin/bash
# Starts a program of the packages with a new store, puts a point, queries it, and stops the program.
#
#   packaging/smoke.sh path/to/tsdb [EMULATOR]    the emulator runs a program of another processor: qemu-aarch64-static
set -euo pipefail
run=(${2:+"$2"} "$1")
data=$(mktemp -d)
daemon=
finish() {
    status=$?
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    [ $status = 0 ] || { echo "smoke: $1 does not work:"; cat "$data/log"; }
    rm -rf "$data"
}
trap 'finish "$1"' EXIT
"${run[@]}" version
"${run[@]}" tsd --data "$data/store" --bind 127.0.0.1 --port 0 --log-format json --auto-metric >"$data/log" 2>&1 &
daemon=$!
for _ in $(seq 600); do
    address=$(sed -n '/ready to serve/s/.*"address":"\([^"]*\)".*/\1/p' "$data/log")
    [ -z "$address" ] || break
    kill -0 "$daemon"
    sleep 0.1
done
now=$(($(date +%s) - 60))
curl -sf "$address/api/put" -d '{"metric":"smoke","timestamp":'$now',"value":42.5,"tags":{"host":"a"}}'
answer=$("${run[@]}" query --url "$address" 1h-ago sum smoke)
[[ "$answer" == *" 42.5"* ]] || { echo "smoke: the query printed: $answer"; exit 1; }
kill "$daemon"
wait "$daemon"
daemon=
echo "smoke: $1 works: $answer"
