#!/bin/bash
# Builds the programs of all tests at once, and runs some of them: a selection of tests by cargo would build the crates again with
# other features.
#
#   tests/programs.sh                            builds them, and lists them
#   tests/programs.sh run NAME [argument...]     runs one: crate/target, as listed
#   tests/programs.sh all [jobs]                 runs those that need no argument, JOBS at a time (2 unless given); each one's output
#                                                is shown when it ends, and at last the times of programs and of tests over 5 s,
#                                                those that wait with their reason (tests/waits.txt: beginning of
#                                                their names, reason)
#
# PROGRAMS names a list that is built already.
set -euo pipefail
# Tests name files beside their sources.
here=$(cd "$(dirname "$0")/.." && pwd)
export CARGO_INCREMENTAL=0

# Crate/target (crate/bin:target for those of a program), directory to run in, path: a line each, those that take longest first.
list() {
    local messages
    messages=$(cd "$here" && cargo test --workspace --locked --no-run --message-format json-render-diagnostics)
    sed -nE '/"reason":"compiler-artifact".*"test":true\},"features".*"executable":"/ {
        s|.*"manifest_path":"([^"]*)/([^"/]*)/Cargo.toml".*"kind":\["([a-z-]*)".*"name":"([^"]*)","src_path".*"executable":"([^"]*)".*|\2/\3:\4\t\1/\2\t\5|
        s#/(test|lib):#/#
        p }' <<<"$messages" |
        sed "s|^$(basename "$here")/|saltern/|" | awk '{ print ($1 == "saltern/main" ? 0 : 1) "\t" $0 }' | sort | cut -f 2-
}
if [ -z "${PROGRAMS:-}" ]; then
    PROGRAMS=$(mktemp)
    trap 'rm -f "$PROGRAMS"' EXIT
    list >"$PROGRAMS"
fi
export PROGRAMS

# NAME [argument...], with what cargo gives a test.
run() {
    local line directory program
    line=$(awk -F '\t' -v name="$1" '$1 == name' "$PROGRAMS")
    [ -n "$line" ] || { echo "programs: there is no $1; tests/programs.sh lists them" >&2; return 2; }
    directory=$(cut -f 2 <<<"$line") program=$(cut -f 3 <<<"$line")
    cd "$directory" && CARGO_MANIFEST_DIR=$directory "$program" "${@:2}"
}

# Runs the tests that failed once more, alone: what passes then has failed because the machine was busy, or now and then, and is listed
# as such. NAME LOG
again() {
    local tests
    mapfile -t tests < <(sed -nE 's/^test (.*) \.\.\. FAILED( .*)?$/\1/p' "$2" | sort -u)
    # A program that ended before its last test, or all of them, is no matter of a busy machine.
    grep -q '^test result: FAILED' "$2" && [ ${#tests[@]} -gt 0 ] && [ ${#tests[@]} -le 3 ] || return 1
    echo "--- $1: once more: ${tests[*]}" >>"$2"
    run "$1" --exact "${tests[@]}" >>"$2" 2>&1 || return 1
    printf '%s\n' "${tests[@]}" >>"$ROWS.again"
}

# One of all: its output as a whole, and its row of the table.
row() {
    local log first=0 status begin=$SECONDS TIMEFORMAT='%U %S' times=()
    log=$(mktemp)
    # The times of tests are an unstable option of the test harness, which one program does not have.
    [ "$1" = saltern/soak ] || times=(-Z unstable-options --report-time)
    { time RUSTC_BOOTSTRAP=1 run "$1" "${times[@]}" >"$log" 2>&1 || first=$?; } 2>"$log.time"
    status=$first
    [ "$first" = 0 ] || { again "$1" "$log" && status=0; }
    {
        flock 9
        echo "--- $1: status $status after $((SECONDS - begin)) s"
        cat "$log"
        printf '%s\t%d\t%s\t%d\n' "$1" $((SECONDS - begin)) "$(tail -n 1 "$log.time")" "$status" >>"$ROWS"
        sed -nE 's/^test (.*) \.\.\. ok <([0-9]+)\.[0-9]+s>$/\2\t\1/p' "$log" | awk '$1 >= 5' >>"$ROWS.tests"
        [ "$first" = 0 ] || {
            echo "$1: status $first, then $status"
            grep -E -A 4 "^test .* FAILED( |$)|panicked at" "$log" | grep -vE '^test .* ok( |$)|^--$|^stack backtrace|^ +[0-9]+: ' | head -n 40
        } | cut -c 1-300 >>"$ROWS.failures"
    } 9>>"$ROWS.lock"
    rm -f "$log" "$log.time"
}

case ${1:-list} in
list) cat "$PROGRAMS" ;;
run) run "${@:2}" ;;
row) row "$2" ;;
all)
    ROWS=$(mktemp)
    export ROWS
    touch "$ROWS.tests" "$ROWS.failures" "$ROWS.again"
    cut -f 1 "$PROGRAMS" | xargs -P "${2:-2}" -n 1 "$here/tests/programs.sh" row
    echo
    sort -rn "$ROWS.tests" | awk -F '\t' '
        FILENAME != "-" { reasons[$1] = $2; next }
        {
            reason = ""
            for (name in reasons) if (index($2, name) == 1) reason = ": " reasons[name]
            printf "%6d s  %s%s\n", $1, $2, reason
        }' "$here/tests/waits.txt" -
    sed 's/^/failed, and passed when run once more: /' "$ROWS.again"
    echo
    awk -F '\t' '
        { split($3, cpu, " "); printf "%-40s %8d %8d%s\n", $1, $2, cpu[1] + cpu[2], $4 == 0 ? "" : "  FAILED"; failed += $4 != 0 }
        END { printf "%d programs, %d failed\n", NR, failed; exit failed > 0 }' "$ROWS" || failed=1
    cat "$ROWS.failures"
    exit "${failed:-0}"
    ;;
*) echo "programs: see the beginning of $0" >&2; exit 2 ;;
esac
