"""A proxy between a client and a daemon, and what the client sent through it.

The bytes of a client are the truth of what it sent: they are parsed here, by rules of their own, and neither by
the client's library nor by the daemon.
"""

import gzip
import json
import socket
import threading
import zlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Point:
    """A point as sent. The time is in milliseconds, the value an int or a float."""

    metric: str
    tags: tuple
    time_ms: int
    value: object


@dataclass(frozen=True)
class Request:
    """An HTTP request that is no put."""

    method: str
    target: str
    content_type: str
    body: bytes

    def __str__(self):
        body = self.body.decode("utf-8", "replace")
        return f"{self.method} {self.target} {body}".strip()


@dataclass
class Sent:
    """What a client sent."""

    points: list = field(default_factory=list)
    #: Telnet lines and JSON objects that are no valid point.
    refused: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    #: Telnet connections, as bytes.
    telnet: list = field(default_factory=list)
    #: Puts over HTTP: target, encoding, body as sent.
    puts: list = field(default_factory=list)


class Recorder:
    """Listens on a free port of this host and forwards every connection."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.streams = []
        self.open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            stream = bytearray()
            done = threading.Event()
            with self.lock:
                self.streams.append(stream)
                self.open.append(done)
            threading.Thread(
                target=self._forward, args=(client, server, stream, done), daemon=True
            ).start()
            threading.Thread(target=self._forward, args=(server, client, None, None), daemon=True).start()

    def _forward(self, source, sink, stream, done):
        try:
            while data := source.recv(65536):
                if stream is not None:
                    with self.lock:
                        stream.extend(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            if done is not None:
                done.set()
            try:
                # The other direction may still have bytes.
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def finish(self, seconds=10):
        """Waits for the end of the connections, and returns what was sent."""
        for done in list(self.open):
            done.wait(seconds)
        self.listener.close()
        sent = Sent()
        with self.lock:
            streams = [bytes(stream) for stream in self.streams]
        for stream in streams:
            if not stream:
                continue
            if stream[:1].isalpha() and stream[:1].isupper():
                parse_http(stream, sent)
            else:
                sent.telnet.append(stream)
                parse_telnet(stream, sent)
        return sent


def parse_telnet(stream, sent):
    """Adds the points of telnet lines."""
    for line in stream.decode("latin-1").split("\n"):
        words = line.rstrip("\r").split(" ")
        if words[0] != "put":
            continue
        point = None
        tags = [word.partition("=") for word in words[4:] if word]
        if len(words) >= 5 and tags and all(key and value for key, _, value in tags):
            point = make_point(words[1], words[2], words[3], {key: value for key, _, value in tags})
        if point:
            sent.points.append(point)
        else:
            sent.refused.append(line)


def parse_http(stream, sent):
    """Adds the points and requests of an HTTP connection."""
    while stream:
        head, separator, stream = stream.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body, stream = unchunk(stream)
        else:
            length = int(headers.get("content-length", "0"))
            body, stream = stream[:length], stream[length:]
        encoding = headers.get("content-encoding", "")
        is_put = method == "POST" and target.split("?")[0].rstrip("/") == "/api/put"
        if not is_put:
            # Some libraries name the encoding of a body that they do not send.
            sent.requests.append(Request(method, target, headers.get("content-type", ""), body))
            continue
        sent.puts.append((target, encoding, body))
        text = gzip.decompress(body) if "gzip" in encoding else body
        text = zlib.decompress(text) if "deflate" in encoding else text
        objects = json.loads(text)
        for item in objects if isinstance(objects, list) else [objects]:
            tags = item.get("tags") or {}
            point = make_point(item.get("metric", ""), item.get("timestamp"), item.get("value"), tags)
            if point and tags:
                sent.points.append(point)
            else:
                sent.refused.append(json.dumps(item))


def unchunk(stream):
    body = b""
    while True:
        size, _, stream = stream.partition(b"\r\n")
        size = int(size.split(b";")[0], 16)
        body, stream = body + stream[:size], stream[size + 2 :]
        if size == 0:
            return body, stream


def make_point(metric, time, value, tags):
    """A point, or None if a number is none."""
    try:
        # Seconds with three decimals are milliseconds; OpenTSDB removes the point.
        time = int(str(time).replace(".", ""))
        text = str(value)
        number = int(text) if not set(text) & set(".eEnNI") else float(text)
    except ValueError:
        return None
    if not metric or number != number or number in (float("inf"), float("-inf")) or time <= 0:
        return None
    time_ms = time if time > 0xFFFFFFFF else time * 1000
    return Point(metric, tuple(sorted((key, str(value)) for key, value in tags.items())), time_ms, number)
