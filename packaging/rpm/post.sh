if [ ! -d /var/lib/tsdb ]; then
    install -d -o tsdb -g tsdb -m 0750 /var/lib/tsdb
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # An update restarts a running daemon.
    [ "$1" -lt 2 ] || systemctl try-restart saltern.service
fi
