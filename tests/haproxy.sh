#!/bin/sh
# Installs Debian's haproxy for the tests of nodes behind a load balancer, if it is missing; says so where it cannot.
set -eu
PATH=$PATH:/usr/sbin
if ! command -v haproxy >/dev/null; then
    if ! command -v apt-get >/dev/null || ! { apt-get update -q >/dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy >/dev/null; }; then
        echo "haproxy: there is neither haproxy nor a way to install it; its test is skipped"
    fi
fi
