"""Reads points back, and compares answers."""

import json
import time
from urllib.parse import quote, urlsplit

from servers import exchange

#: Fields that depend on the order in which names got UIDs, or on the clock.
VOLATILE = {"tsuids", "tsuid", "filterTagKs", "time", "timing"}
#: Paths whose answers have other texts: only their kind is compared.
OWN_TEXTS = ("/api/version", "/version", "/api/stats", "/stats", "/api/config", "/api/serializers")


def expected_points(sent):
    """Points by series and time. Of two at one time the last one stays."""
    series = {}
    for point in sent.points:
        series.setdefault((point.metric, point.tags), {})[point.time_ms] = point.value
    return series


def read_back(address, sent):
    """Compares what is stored with what was sent. Returns the number of equal points, and differences."""
    wanted = expected_points(sent)
    found, differences = {}, []
    for metric in sorted({metric for metric, _ in wanted}):
        times = [time for (name, _), points in wanted.items() if name == metric for time in points]
        target = f"/api/query?start={min(times) // 1000 - 1}&end={max(times) // 1000 + 2}&ms&arrays&no_annotations"
        target += "&m=none:" + quote(metric)
        status, body = exchange(address, "GET", target)
        if status != 200:
            differences.append(f"{metric}: {status} {body[:200]!r}")
            continue
        for one in json.loads(body):
            found[metric, tuple(sorted(one["tags"].items()))] = dict(map(tuple, one["dps"]))
    equal = 0
    for (metric, tags), points in wanted.items():
        stored = found.get((metric, tags), {})
        for time_ms, value in points.items():
            # Integers of a series that has other values, too, are printed as doubles.
            if stored.get(time_ms) == value:
                equal += 1
            elif len(differences) < 5:
                differences.append(f"{metric} {dict(tags)} {time_ms}: sent {value}, stored {stored.get(time_ms)}")
    return equal, differences


def replay_points(address, sent):
    """Sends a client's points to another server, byte for byte."""
    import socket

    for stream in sent.telnet:
        with socket.create_connection(address, timeout=60) as connection:
            # A client that does not read leaves the reading to the end.
            connection.sendall(stream + b"exit\n")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    for target, encoding, body in sent.puts:
        headers = {"Content-Type": "application/json"}
        if encoding:
            headers["Content-Encoding"] = encoding
        exchange(address, "POST", target, body, headers)


def wait_for_points(address, sent, seconds=30):
    """Waits until a server that stores points later has them all."""
    end = time.monotonic() + seconds
    wanted = sum(map(len, expected_points(sent).values()))
    while time.monotonic() < end:
        equal, _ = read_back(address, sent)
        if equal == wanted:
            return
        time.sleep(0.5)


def answers(address, sent):
    """Comparable answers to the queries of a client, in order of the queries: some clients ask in threads."""
    found = [answer(address, request, names_of(sent)) for request in sent.requests]
    return sorted(found, key=lambda one: one["request"])


def names_of(sent):
    """Metrics, tag keys and tag values of a client."""
    names = set()
    for point in sent.points:
        names.add(point.metric)
        names.update(*point.tags)
    return names


def answer(address, request, names):
    """The comparable form of an answer: status, and JSON or text."""
    headers = {"Content-Type": request.content_type} if request.content_type else {}
    status, body = exchange(address, request.method, request.target, request.body or None, headers)
    path = urlsplit(request.target).path.rstrip("/")
    try:
        value = normalized(json.loads(body))
    except ValueError:
        # The lines of graphs have no order between series.
        value = sorted(body.decode("utf-8", "replace").splitlines())
    if path.startswith("/api/config/filters") and isinstance(value, dict):
        value = sorted(value)
    elif path.startswith("/api/suggest") and isinstance(value, list):
        # Without the names of other clients.
        value = [name for name in value if name in names]
    elif path.startswith(OWN_TEXTS):
        value = type(value).__name__
    return {"request": str(request), "status": status, "answer": value}


def normalized(value):
    """JSON without what depends on UIDs or the clock, series in order of their names."""
    if isinstance(value, dict):
        fields = {key: normalized(item) for key, item in value.items() if key not in VOLATILE}
        if "aggregateTags" in fields:
            # In order of their UIDs.
            fields["aggregateTags"].sort()
        return fields
    if isinstance(value, list):
        items = [normalized(item) for item in value]
        if items and all(isinstance(item, dict) for item in items):
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        return items
    # Both print doubles as Java does, some releases of which print a digit more.
    return float(f"{value:.15g}") if isinstance(value, float) else value


def compare_answers(ours, theirs):
    """Differences of two lists of answers."""
    differences = []
    if len(ours) != len(theirs):
        return [f"{len(ours)} answers, expected {len(theirs)}"]
    for one, other in zip(ours, theirs):
        if one != other:
            differences.append(f"{one['request']}: {short(one)}, expected {short(other)}")
    return differences


def short(one):
    return f"{one['status']} {json.dumps(one['answer'])[:400]}"
