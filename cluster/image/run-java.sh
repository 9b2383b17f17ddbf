#!/bin/sh
# run-java.sh CLASS [ARGUMENT...]: replaces this process by a class of HBase or ZooKeeper.
set -eu
open() { echo "--add-opens=java.base/$1=ALL-UNNAMED"; }
export_() { echo "--add-exports=$1=ALL-UNNAMED"; }
exec java "-Xmx${JAVA_HEAP:-1g}" \
    -XX:+ExitOnOutOfMemoryError -Djava.net.preferIPv4Stack=true \
    -Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true \
    --add-modules=jdk.unsupported \
    "$(open java.io)" "$(open java.nio)" "$(open sun.nio.ch)" "$(open java.lang)" \
    "$(open jdk.internal.ref)" "$(open java.lang.reflect)" "$(open java.util)" \
    "$(open java.util.concurrent)" \
    "$(export_ java.base/jdk.internal.misc)" "$(export_ java.security.jgss/sun.security.krb5)" \
    "$(export_ java.base/sun.net.dns)" "$(export_ java.base/sun.net.util)" \
    -cp "${HBASE_HOME:-/opt/hbase}/conf:${HBASE_HOME:-/opt/hbase}/lib/*" "$@"
