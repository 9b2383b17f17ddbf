#!/bin/sh
# fetch-jars.sh LOCK DIRECTORY: downloads the jars of a lock file and verifies their checksums.
set -eu
repository=${MAVEN_REPOSITORY:-https://repo.maven.apache.org/maven2}
mkdir -p "$2"
while read -r _ _ path; do
    printf 'url = "%s/%s"\noutput = "%s/%s"\n' "$repository" "$path" "$2" "${path##*/}"
done <"$1" | curl --silent --show-error --no-progress-meter --fail --location --retry 3 --parallel --parallel-max 16 --config -
while read -r _ sum path; do
    echo "$sum  $2/${path##*/}"
done <"$1" | sha256sum --check --quiet -
