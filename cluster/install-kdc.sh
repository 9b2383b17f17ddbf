#!/bin/sh
# Installs MIT Kerberos with its KDC, and openssl, on Debian or Ubuntu, unless they are there. Starts no service. Needs root.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=
for tool in krb5kdc kdb5_util kadmin.local kinit openssl; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "no$missing, and no apt-get: install MIT Kerberos with its KDC and administration tools, and openssl" >&2
    exit 1
fi
# Two tests may need the packages at once.
exec 9>"${TMPDIR:-/tmp}/install-kdc.lock"
command -v flock >/dev/null && flock 9
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -y -o DPkg::Lock::Timeout=300 -qq "$@"; }
apt update
# The packages would start services where the system has an init.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
apt install --no-install-recommends krb5-kdc krb5-admin-server krb5-user openssl
