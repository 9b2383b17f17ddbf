if ! getent passwd tsdb >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/tsdb --shell /sbin/nologin tsdb
fi
