#!/bin/sh
# The web page in a real headless Chromium, and the types of its scripts. Installs Debian's chromium and chromium-driver if they are
# missing; says so where it cannot.
#
#   tests/page.sh [option...]     options: see tests/page/main.rs; UPDATE_DOCS=1 renews the pictures in docs/images
set -eu
cd "$(dirname "$0")/.."

# The compiler checks the comments only: what is served is what is written.
if command -v npx >/dev/null; then
    echo "page: types of the scripts"
    npx -y -p typescript@5.9 tsc --noEmit --checkJs --allowJs --strict --noUncheckedIndexedAccess --noImplicitOverride \
        --exactOptionalPropertyTypes --noUnusedLocals --noUnusedParameters --noFallthroughCasesInSwitch \
        --target es2023 --module es2022 --moduleResolution bundler --lib es2023,dom,dom.iterable crates/tsd-server/page/*.js
else
    echo "page: the types of the scripts are not checked, there is no npx"
fi

if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    if ! command -v apt-get >/dev/null || ! { apt-get update -q >/dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium chromium-driver >/dev/null; }; then
        echo "page: skipped, there is neither chromium nor a way to install it"
        exit 0
    fi
fi
# Chromium aborts the requests of a page when an address of the machine changes, and tests of faults make and remove networks meanwhile:
# so daemon and browser get a network of their own, where the user may make one.
if unshare --net ip link set lo up 2>/dev/null; then
    # shellcheck disable=SC2016
    exec unshare --net sh -c 'ip link set lo up && exec "$@"' page tests/programs.sh run saltern/page run "$@"
fi
exec tests/programs.sh run saltern/page run "$@"
