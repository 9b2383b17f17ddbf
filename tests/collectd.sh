#!/bin/sh
# Real input: collectd sends to a daemon for a while. Queries must return every value that collectd also
# wrote to its CSV files, with the right metric, tags and second.
#
#   tests/collectd.sh [seconds]     120 without an argument; installs collectd-core if it is missing
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-120}
host=collectd.test

find_collectd() { command -v collectd || { [ -x /usr/sbin/collectd ] && echo /usr/sbin/collectd; }; }
if ! collectd=$(find_collectd); then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends collectd-core curl >&2
    collectd=$(find_collectd)
fi
cargo build --release --quiet --locked

work=$(mktemp -d)
tsd= sender=
finish() {
    [ -z "$sender" ] || kill "$sender" 2>/dev/null || true
    [ -z "$tsd" ] || kill "$tsd" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

target/release/tsdb tsd --port 0 --bind 127.0.0.1 --data "$work/data" --log-format json \
    2>"$work/tsd.log" &
tsd=$!
address=
for _ in $(seq 100); do
    address=$(sed -n 's/.*"message":"ready to serve".*"address":"\([^"]*\)".*/\1/p' "$work/tsd.log")
    [ -z "$address" ] || break
    sleep 0.1
done
[ -n "$address" ] || { cat "$work/tsd.log" >&2; exit 1; }

cat >"$work/collectd.conf" <<END
Hostname "$host"
FQDNLookup false
BaseDir "$work"
PIDFile "$work/collectd.pid"
TypesDB "/usr/share/collectd/types.db"
Interval 2
LoadPlugin cpu
LoadPlugin load
LoadPlugin memory
LoadPlugin interface
LoadPlugin csv
<Plugin csv>
    DataDir "$work/csv"
    StoreRates false
</Plugin>
LoadPlugin write_tsdb
<Plugin write_tsdb>
    <Node>
        Host "${address%:*}"
        Port "${address##*:}"
        HostTags "source=collectd"
        StoreRates false
        AlwaysAppendDS false
    </Node>
</Plugin>
END
echo "collectd sends to $address for $seconds s"
start=$(($(date +%s) - 10))
"$collectd" -f -C "$work/collectd.conf" >"$work/collectd.log" 2>&1 &
sender=$!
sleep "$seconds"
# A clean exit flushes the values that collectd has buffered.
kill "$sender"
wait "$sender" || { cat "$work/collectd.log" >&2; exit 1; }
sender=
end=$(($(date +%s) + 10))
sleep 1

# The values that collectd sent: metric, second, value.
(cd "$work/csv/$host" && find . -type f) | while read -r file; do
    file=${file#./}
    plugin=${file%%/*} type=${file#*/}
    type=${type%-????-??-??}
    # write_tsdb names the type first, but last where the plugin has no instance.
    case $plugin/$type in
        *-*/*) metric=$(echo "$plugin" | sed 's/-/./').$(echo "$type" | sed 's/-/./') ;;
        */*-*) metric=$plugin.${type#*-}.${type%%-*} ;;
        *) metric=$plugin.$type ;;
    esac
    awk -F, -v metric="$metric" '
        NR == 1 { for (i = 2; i <= NF; i++) source[i] = NF > 2 ? metric "." $i : metric; next }
        { for (i = 2; i <= NF; i++) if ($i != "nan") printf "%s %.0f %s\n", source[i], $1, $i }
    ' "$work/csv/$host/$file"
done | sort >"$work/sent"

# The values that the daemon returns.
cut -d' ' -f1 "$work/sent" | sort -u | while read -r metric; do
    response=$(curl -sS \
        "http://$address/api/query?start=$start&end=$end&m=sum:$metric%7Bfqdn=$host,source=collectd%7D")
    case $response in
        *'"tags":{"fqdn":"'"$host"'","source":"collectd"}'* | \
            *'"tags":{"source":"collectd","fqdn":"'"$host"'"}'*) ;;
        *) echo "$metric: $response" >&2 ;;
    esac
    echo "$response" | sed 's/.*"dps":{\([^}]*\)}.*/\1/' | tr ',' '\n' | tr -d '"' |
        awk -F: -v metric="$metric" 'NF == 2 { print metric, $1, $2 }'
done | sort >"$work/found"

awk '
    function about(a, b) { d = a - b; if (d < 0) d = -d; m = a < 0 ? -a : a; return d <= m * 1e-6 + 1e-6 }
    FNR == NR { found[$1 " " $2] = $3; next }
    {
        series[$1]++; last[$1] = $3
        key = $1 " " $2
        if (!(key in found)) missing[$1]++
        else if (!about($3, found[key])) { wrong[$1]++; print "sent", $0, "found", found[key] > "/dev/stderr" }
    }
    END {
        printf "%-36s %7s %8s %6s  %s\n", "metric", "points", "missing", "wrong", "last value"
        for (metric in series) {
            names++; points += series[metric]; bad += missing[metric] + wrong[metric]
            printf "%-36s %7d %8d %6d  %s\n", metric, series[metric], missing[metric], wrong[metric], last[metric] | "sort"
        }
        close("sort")
        printf "%d series, %d points sent, %d missing or wrong\n", names, points, bad
        exit !(names >= 10 && bad == 0)
    }
' "$work/found" "$work/sent"
