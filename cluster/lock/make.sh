#!/bin/sh
# Regenerates the lock of each set of jars: the jars its pom resolves to, in class path order.
# A line is `group:artifact:version sha256 path`, with the path in a repository. Needs Maven.
set -eu
cd "$(dirname "$0")"
# Maven appends a colour reset to its output, even without a terminal.
home=$(mvn -B -q help:evaluate -Dexpression=settings.localRepository -DforceStdout |
    sed "s/$(printf '\033')[^m]*m//g")

# lock POM LOCK [OPTION]
lock() {
    pom=$1
    lock=$2
    shift 2
    list=$(mktemp)
    mvn -B -q -f "$pom" dependency:build-classpath -DincludeScope=runtime \
        -Dmdep.outputFile="$list" -Dmdep.pathSeparator='|' "$@"
    {
        tr '|' '\n' <"$list"
        echo
    } | while read -r jar; do
        [ -n "$jar" ] || continue
        path=${jar#"$home"/}
        version=${path%/*}
        artifact=${version%/*}
        group=$(echo "${artifact%/*}" | tr / .)
        sum=$(sha256sum "$jar" | cut -d ' ' -f 1)
        echo "$group:${artifact##*/}:${version##*/} $sum $path"
    done >"$lock"
    rm "$list"
}

for version in 2.4.18 2.5.13-hadoop3 2.6.4-hadoop3 3.0.0-alpha-4; do
    lock hbase/pom.xml "hbase-$version.lock" "-Dhbase.version=$version"
done
lock opentsdb/pom.xml opentsdb.lock
