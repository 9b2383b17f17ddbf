"""opentsdb-py: HTTP with gzip, and telnet."""

import sys

from opentsdb import TSDBClient, TSDBConnectProtocols

host, port, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for protocol in (TSDBConnectProtocols.HTTP, TSDBConnectProtocols.TELNET):
    client = TSDBClient(
        host, port, protocol=protocol, host_tag=False, static_tags={"protocol": protocol}
    )
    assert client.is_alive()
    for step in range(100):
        client.send("clients.opentsdb-py.sent", step, timestamp=second + step, node="a")
        client.send("clients.opentsdb-py.ratio", step / 3, timestamp=second + step, node="b")
    client.close()
    client.wait()
    assert client.statuses["failed"] == 0, client.statuses
    assert client.statuses["success"] == 200, client.statuses
