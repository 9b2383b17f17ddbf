# Sourced by .ci/run and tests/all.sh: runs named steps, and tells what each of them took.
#
#   step NAME COMMAND...    runs it; its output is shown when it ends; returns its status
#   build_tests             the step that builds the programs of the tests; PROGRAMS is their list
#   finish                  shows the ends of failed steps and the table of all steps; exits with 1 if one has failed
#
# Steps of several lanes run at the same time: a lane is a subshell. The steps of a script that another script calls are in the
# table of the caller.

export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
if [ -z "${STEPS:-}" ]; then
    STEPS=$(mktemp -d)
    export STEPS
    steps_owner=$$
fi

step() {
    local name=$1 log status=0 begin=$SECONDS TIMEFORMAT='%U %S'
    shift
    log=$(mktemp "$STEPS/log.XXXXXX")
    # CPU time of daemons and servers is counted if their test has waited for their end.
    { time "$@" >"$log" 2>&1 || status=$?; } 2>"$log.time"
    {
        flock 9
        printf '%s\t%s\t%s\t%s\n' "$name" $((SECONDS - begin)) "$(tail -n 1 "$log.time")" "$status" >>"$STEPS/table"
        echo "=== $name: status $status after $((SECONDS - begin)) s"
        cat "$log"
        [ "$status" = 0 ] || {
            echo "=== $name: status $status"
            grep -E -A 3 'panicked at|^error|FAILED$|not found' "$log" | tail -n 20
            echo "--- its end:"
            tail -n 40 "$log"
        } | cut -c 1-300 >>"$STEPS/failures"
    } 9>>"$STEPS/lock"
    rm -f "$log" "$log.time"
    return "$status"
}

build_tests() {
    PROGRAMS=$STEPS/programs
    export PROGRAMS
    list_programs() { env -u PROGRAMS tests/programs.sh list >"$PROGRAMS"; }
    step "build of the tests" list_programs
}

finish() {
    [ "${steps_owner:-}" = $$ ] || return 0
    trap - EXIT
    touch "$STEPS/table"
    # What did not end: the run was stopped.
    for log in "$STEPS"/log.??????; do
        [ ! -f "$log" ] || { echo "=== not ended:" && cat "$log"; }
    done
    # Repeated here, since a reader of a long output looks at its end.
    [ ! -f "$STEPS/failures" ] || { echo && echo "failed steps end with" && cat "$STEPS/failures"; }
    echo
    awk -F '\t' -v all="$SECONDS" '
        BEGIN { printf "%-40s %8s %8s\n", "step", "wall, s", "CPU, s" }
        { split($3, cpu, " "); sum += cpu[1] + cpu[2]; failed += $4 != 0
          printf "%-40s %8d %8d%s\n", $1, $2, cpu[1] + cpu[2], $4 == 0 ? "" : "  FAILED" }
        END { printf "%-40s %8d %8d\n", "all", all, sum
              printf "%d passed, %d failed\n", NR - failed, failed
              exit failed > 0 }' "$STEPS/table" || exit 1
    rm -rf "$STEPS"
}
