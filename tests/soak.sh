#!/bin/sh
# Mixed load with faults on the release build: see tests/soak/main.rs. Needs root for the small disk.
#
#   tests/soak.sh [--hours H] [--minutes M] [--seed N] [--rate POINTS_PER_SECOND]     3 minutes by default
set -eu
cd "$(dirname "$0")/.."
exec nice -n 5 cargo test --release --locked --test soak -- run "$@"
