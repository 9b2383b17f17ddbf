# Ends the processes of a cluster whose own process is gone, however it went. Reads from its standard
# input `+ PID START`, `- PID` and `leave`; at the end of the input whatever was added and not taken
# away is killed, if it is still the process that started then, and the directory $1 is removed, if
# there is one. `leave` ends it without either.
trap '' HUP INT TERM
ours=
while read -r word pid start; do
    case $word in
    +) ours="$ours $pid:$start" ;;
    -)
        rest=
        for one in $ours; do
            [ "${one%%:*}" = "$pid" ] || rest="$rest $one"
        done
        ours=$rest
        ;;
    leave) exit 0 ;;
    esac
done
for one in $ours; do
    read -r stat 2>/dev/null <"/proc/${one%%:*}/stat" || continue
    # Behind the name, which may hold blanks: the start is the 20th word.
    set -- "$1" ${stat##*) }
    shift_by=20
    start=$(shift $shift_by; echo "$1")
    [ "$start" = "${one##*:}" ] && kill -9 "${one%%:*}"
done
[ -z "$1" ] || rm -rf "$1"
