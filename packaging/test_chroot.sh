#!/bin/bash
# The part of packaging/test.sh that runs in its own mounts, processes and network.
set -euo pipefail
ip link set lo up
mount -t proc proc /proc
root=$WORK/root
daemon=
finish() {
    status=$?
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    [ $status = 0 ] || { echo "packaging: FAILED"; tail -n 20 "$WORK"/*.log; }
}
trap finish EXIT

into=(chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
inside() { "${into[@]}" "$@"; }
expect() { # WHAT ACTUAL EXPECTED
    [ "$2" = "$3" ] || { echo "packaging: $1: $2, expected $3"; exit 1; }
    echo "packaging: $1: $2"
}
await() { # LOG
    for _ in $(seq 600); do
        grep -q "ready to serve" "$1" && return
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    cat "$1"
    exit 1
}
# Runs the unit's command as its user, in its directory.
start() { # LOG
    local unit=$root/lib/systemd/system/saltern.service
    [ -f "$unit" ] || unit=$root/usr/lib/systemd/system/saltern.service
    local command user
    command=$(sed -n 's/^ExecStart=//p' "$unit")
    user=$(sed -n 's/^User=//p' "$unit")
    # One process, so that the signal of `stop` reaches the daemon.
    # shellcheck disable=SC2086
    "${into[@]}" setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs \
        sh -c 'cd /var/lib/tsdb && umask 0027 && exec "$@"' _ $command >"$1" 2>&1 &
    daemon=$!
    await "$1"
}
stop() {
    kill "$daemon"
    wait "$daemon" || { echo "packaging: the daemon exited with $?"; exit 1; }
    daemon=
}
sum() { curl -sf '127.0.0.1:4242/api/query?start=1h-ago&m=sum:10m-sum:package.test' | grep -o ':[0-9.]*}' | tr -d ':}'; }
put() { # VALUE
    curl -sf 127.0.0.1:4242/api/put -d '{"metric":"package.test","timestamp":'"$NOW"',"value":'"$1"',"tags":{"n":"'"$1"'"}}'
}
NOW=$(($(date +%s) - 60))

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9

# Install.
inside dpkg -i /tmp/saltern_0.0.9-1_amd64.deb >"$WORK/install.log" 2>&1
expect "user" "$(inside getent passwd tsdb | cut -d: -f6-7)" /var/lib/tsdb:/usr/sbin/nologin
expect "configuration" "$(inside stat -c '%U:%G %a' /etc/opentsdb/opentsdb.conf)" "root:tsdb 640"
expect "data" "$(inside stat -c '%U:%G %a' /var/lib/tsdb)" "tsdb:tsdb 750"
inside tsdb config check --strict /etc/opentsdb/opentsdb.conf
expect "enabled" "$(inside readlink /etc/systemd/system/multi-user.target.wants/saltern.service | sed 's|^/usr||')" \
    /lib/systemd/system/saltern.service
for file in /usr/share/man/man1/tsdb.1 /usr/share/man/man1/tsdb-tsd.1 /usr/share/bash-completion/completions/tsdb \
    /usr/share/zsh/vendor-completions/_tsdb /usr/share/fish/vendor_completions.d/tsdb.fish; do
    [ -f "$root$file" ] || [ -f "$root$file.gz" ] || { echo "packaging: no $file"; exit 1; }
done
# shellcheck disable=SC2016
expect "completion of vers" "$(inside bash -c '
    . /usr/share/bash-completion/completions/tsdb
    COMP_WORDS=(tsdb vers) COMP_CWORD=1
    _tsdb tsdb vers tsdb
    echo "${COMPREPLY[@]}"')" version
if command -v systemd-analyze >/dev/null; then
    cp "$(find "$root"/lib/systemd/system "$root"/usr/lib/systemd/system -name saltern.service 2>/dev/null | head -1)" "$WORK/saltern.service"
    # The program is only in the chroot.
    sed 's|/usr/bin/tsdb|/bin/true|' "$WORK/saltern.service" >"$WORK/checked.service"
    systemd-analyze verify --man=no "$WORK/checked.service"
    systemd-analyze security --offline=true --threshold=20 "$WORK/saltern.service" >"$WORK/security.log" 2>&1 ||
        { tail -3 "$WORK/security.log"; exit 1; }
    tail -1 "$WORK/security.log"
fi

# Start, put, stop; the status of a wrong configuration.
start "$WORK/first.log"
put 1
inside tsdb health --url 127.0.0.1:4242
expect "one point" "$(sum)" 1.0
stop
expect "files" "$(inside find /var/lib/tsdb ! -user tsdb -print)" ""
status=0
inside env TSD_MODE=x tsdb tsd --config /etc/opentsdb/opentsdb.conf >"$WORK/wrong.log" 2>&1 || status=$?
expect "status of a wrong configuration" $status 78

# Upgrade: the store and the edited configuration stay.
echo "tsd.core.tag.allow_specialchars = é" >>"$root/etc/opentsdb/opentsdb.conf"
inside dpkg -i --force-confold "/tmp/saltern_$VERSION-1_amd64.deb" >"$WORK/upgrade.log" 2>&1
expect "version" "$(inside dpkg-query -W -f '${Version}' saltern)" "$VERSION-1"
expect "configuration" "$(inside stat -c '%U:%G %a' /etc/opentsdb/opentsdb.conf)" "root:tsdb 640"
expect "edited" "$(tail -1 "$root/etc/opentsdb/opentsdb.conf")" "tsd.core.tag.allow_specialchars = é"
start "$WORK/second.log"
put 2
expect "both points" "$(sum)" 3.0
stop

# Remove: configuration and points stay. Purge: points stay.
inside dpkg -r saltern >"$WORK/remove.log" 2>&1
expect "program" "$(inside sh -c 'command -v tsdb || echo none')" none
expect "configuration" "$(inside sh -c 'ls /etc/opentsdb')" opentsdb.conf
inside dpkg -P saltern >"$WORK/purge.log" 2>&1
grep -q "still has the stored points" "$WORK/purge.log"
expect "configuration" "$(inside sh -c 'ls -d /etc/opentsdb 2>/dev/null || echo none')" none
expect "store" "$(inside sh -c 'ls -d /var/lib/tsdb/store')" /var/lib/tsdb/store
# Without points, nothing is left.
inside sh -c 'rm -rf /var/lib/tsdb' && inside dpkg -i "/tmp/saltern_$VERSION-1_amd64.deb" >"$WORK/again.log" 2>&1
inside dpkg -P saltern >"$WORK/purge.log" 2>&1
expect "user" "$(inside getent passwd tsdb || echo none)" none

# The container's root file system, as packaging/Containerfile makes it: read-only, with a volume, as its user.
image=$WORK/image
mkdir -p "$image/usr/bin" "$image/var/lib/tsdb" "$image/proc"
install -m 755 "${STATIC:-$PROGRAM}" "$image/usr/bin/tsdb"
if [ -z "$STATIC" ]; then
    ldd "$PROGRAM" | grep -o '/[^ ]*' | while read -r library; do install -D "$library" "$image$library"; done
fi
chown 65532:65532 "$image/var/lib/tsdb"
mount --bind "$image" "$image"
mount -t tmpfs -o uid=65532,gid=65532 tmpfs "$image/var/lib/tsdb"
mount -t proc proc "$image/proc"
mount -o remount,bind,ro "$image"
into_image=(chroot --userspec=65532:65532 "$image" /usr/bin/tsdb)
command=$(sed -n 's/^CMD \[\(.*\)\]/\1/p' packaging/Containerfile | tr -d '",')
# shellcheck disable=SC2086
"${into_image[@]}" $command >"$WORK/container.log" 2>&1 &
daemon=$!
await "$WORK/container.log"
"${into_image[@]}" health --url 127.0.0.1:4242
put 4
expect "the container's point" "$(sum)" 4.0
if touch "$image/usr/bin/x" 2>/dev/null; then echo "packaging: the root is writable"; exit 1; fi
stop
echo "packaging: everything works"
