"""pyopentsdb: puts and every query it has."""

import sys
from datetime import datetime, timezone

from pyopentsdb import tsdb

host, port, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = tsdb.tsdb_connection(f"http://{host}:{port}")
points = [
    {
        "metric": f"clients.pyopentsdb.{name}",
        "timestamp": (second + step) * 1000 + 500,
        "value": value(step),
        "tags": {"host": node, "unit": "s"},
    }
    for step in range(1, 61)
    for node in ("a", "b")
    for name, value in (("count", lambda step: step), ("time", lambda step: step / 8 + 0.1))
]
# Its options of puts do not work: it passes them on to `requests`, which knows none of them.
assert client.put(points) is None
assert client.put(points[0]) is None

start = datetime.fromtimestamp(second, timezone.utc)
end = datetime.fromtimestamp(second + 61, timezone.utc)


def query(metric="clients.pyopentsdb.count", aggregator="sum", **options):
    return {"start": start, "end": end, "metrics": [{"metric": metric, "aggregator": aggregator, **options}]}


QUERIES = [
    query(),
    query(aggregator="avg", tags={"host": "*"}),
    query(aggregator="max", downsample="10s-avg"),
    query(rate=True, tags={"host": "a"}),
    query(rate=True, rateOptions={"counter": True, "dropResets": True}),
    query("clients.pyopentsdb.time", filters=[
        {"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": True},
        {"type": "literal_or", "tagk": "unit", "filter": "s", "groupBy": False},
    ]),
    query("clients.pyopentsdb.time", "p95", downsample="30s-max-zero", explicitTags=True,
          filters=[{"type": "regexp", "tagk": "host", "filter": "[ab]", "groupBy": False},
                   {"type": "iliteral_or", "tagk": "unit", "filter": "S", "groupBy": False}]),
]
for one in QUERIES:
    assert client.query(**one), one
assert client.query(ms=True, show_query=True, **QUERIES[1])
assert client.query(no_annotations=True, timezone="Europe/Berlin", use_calendar=True,
                    **query(downsample="1hc-sum"))
assert len(client.multiquery([query(), query("clients.pyopentsdb.time")])) == 2
assert client.metrics(regexp="pyopentsdb") or client.suggest(type="metrics", q="clients.pyopentsdb")
assert client.suggest(type="tagk", q="h") and client.suggest(type="tagv", q="a", max=5)
assert "sum" in client.aggregators()
assert client.version()["version"]
assert client.config()["tsd.core.auto_create_metrics"] == "true"
assert "literal_or" in client.filters()
assert client.stats() and client.dropcaches()["status"] == "200"
try:
    client.query(**query("clients.pyopentsdb.none"))
    raise SystemExit("a metric that does not exist has an answer")
except Exception as error:
    assert "No such name" in str(error), error
