# Kills the processes of a cluster when the process that started them is gone. Reads `+ PID START`,
# `- PID` and `detach` from standard input; at the end of the input every process that was added and
# not removed is killed if its start time matches, and the directory $1, if any, is removed. `detach`
# exits without either.
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
    detach) exit 0 ;;
    esac
done
for one in $ours; do
    read -r stat 2>/dev/null <"/proc/${one%%:*}/stat" || continue
    # After the name, which may contain blanks, the start time is the 20th field.
    set -- "$1" ${stat##*) }
    shift_by=20
    start=$(shift $shift_by; echo "$1")
    [ "$start" = "${one##*:}" ] && kill -9 "${one%%:*}"
done
[ -z "$1" ] || rm -rf "$1"
