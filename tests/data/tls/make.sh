#!/bin/sh
# Makes the certificates of tests again, with OpenSSL: two authorities, and nodes of them; valid from 2000 to 2100 (expired: 2001), whatever the
# clock of the host that tests.
# Nobody trusts these authorities, so their keys are not kept, and those of the nodes are no secret.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/index"
cat >"$work/config" <<CONFIG
[ca]
default_ca = tests
[tests]
new_certs_dir = $work
database = $work/index
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
CONFIG

# sign REQUEST_NAME EXTENSIONS OUTPUT OPTION...
sign() {
    printf '%s\n' "$2" >"$work/extensions"
    request=$work/$1.request output=$3
    shift 3
    openssl ca -batch -notext -config "$work/config" -startdate 20000101000000Z -enddate 21000101000000Z \
        -extfile "$work/extensions" -in "$request" -out "$output" "$@"
}

# request NAME KEY
request() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -config "$work/config" \
        -keyout "$2" -out "$work/$1.request"
}

# authority NAME
authority() {
    mkdir -p "$1"
    request "$1" "$work/$1.key"
    sign "$1" "$(printf 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign')" "$1/ca.pem" \
        -selfsign -keyfile "$work/$1.key"
}

# node_with AUTHORITY FILE EXTENSIONS OPTION...
node_with() {
    authority=$1 file=$2 extensions=$3
    shift 3
    request "$file" "$authority/$file.key"
    sign "$file" "$extensions" "$authority/$file.pem" -cert "$authority/ca.pem" -keyfile "$work/$authority.key" "$@"
}

# node AUTHORITY FILE ADDRESSES
node() {
    node_with "$1" "$2" "$(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth' "$3")"
}

authority one
authority two
node one node DNS:localhost,IP:127.0.0.1
node one elsewhere IP:10.0.0.1
node two node DNS:localhost,IP:127.0.0.1
node_with one nameless 'extendedKeyUsage=clientAuth'
node_with one expired 'subjectAltName=DNS:localhost,IP:127.0.0.1' -enddate 20010101000000Z
