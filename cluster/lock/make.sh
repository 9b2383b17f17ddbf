#!/bin/sh
# Regenerates the lock of each set of jars: the jars its pom resolves to, in class path order.
# A line is `group:artifact:version sha256 path`, with the path in a repository. Needs Maven.
set -eu
cd "$(dirname "$0")"
# Maven appends a colour reset to its output, even without a terminal.
home=$(mvn -B -q help:evaluate -Dexpression=settings.localRepository -DforceStdout |
    sed "s/$(printf '\033')[^m]*m//g")
for set in hbase opentsdb; do
    list=$(mktemp)
    mvn -B -q -f "$set/pom.xml" dependency:build-classpath -DincludeScope=runtime \
        -Dmdep.outputFile="$list" -Dmdep.pathSeparator='|'
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
    done >"$set.lock"
    rm "$list"
done
