"""potsdb: telnet lines from a thread of its own."""

import sys

import potsdb

host, port, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = potsdb.Client(host, port=port, host_tag="web01", check_host=True)
for step in range(100):
    client.send("clients.potsdb.requests", step * 3, timestamp=second + step, path="/", method="get")
    client.log("clients.potsdb.load", step / 7, timestamp=second + step, host="web02", core=step % 4)
client.wait()
