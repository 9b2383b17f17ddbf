"""The daemon under test, and a real OpenTSDB where there is a Java."""

import json
import os
import shutil
import subprocess
import time
from http.client import HTTPConnection

#: Settings of both, so that points may have new names and be sent in large bodies.
SETTINGS = {
    "tsd.core.auto_create_metrics": "true",
    "tsd.core.meta.enable_tsuid_tracking": "true",
    "tsd.core.timezone": "UTC",
    "tsd.storage.fix_duplicates": "true",
    "tsd.http.show_stack_trace": "false",
}
#: Settings of OpenTSDB: points are visible at once, and bodies may be large.
OPENTSDB_SETTINGS = {
    "hbase.rpcs.buffered_flush_interval": "20",
    "tsd.http.request.enable_chunked": "true",
    "tsd.http.request.max_chunk": "1000000",
}


class Daemon:
    """A daemon of ours on a data directory of its own."""

    def __init__(self, directory):
        variables = {key.upper().replace(".", "_"): value for key, value in SETTINGS.items()}
        # The layout of rows that OpenTSDB has by default, so that both list series in one order.
        variables["TSD_STORAGE_SALT_WIDTH"] = "0"
        self.log = directory / "tsdb.log"
        command = [os.environ["TSDB"], "tsd", "--port", "0", "--bind", "127.0.0.1"]
        command += ["--data", str(directory / "data"), "--log-format", "json"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, **variables})
        self.address = self._wait()

    def _wait(self):
        for _ in range(600):
            for line in self.log.read_text().splitlines():
                if '"ready to serve"' in line:
                    event = json.loads(line)
                    host, _, port = event.get("address", event.get("fields", {}).get("address")).rpartition(":")
                    return host, int(port)
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit("clients: the daemon did not start:\n" + self.log.read_text())

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()

    def stop(self):
        self.process.terminate()
        if self.process.wait(60) != 0:
            raise SystemExit("clients: the daemon did not stop cleanly:\n" + self.log.read_text())


class OpenTsdb:
    """A real OpenTSDB on an HBase of its own."""

    def __init__(self, directory):
        self.directory = str(directory / "cluster")
        launcher = os.environ.get("CLUSTER")
        cargo = ["cargo", "run", "--quiet", "--locked", "-p", "cluster", "--"]
        self.command = [*([launcher] if launcher else cargo), "-D", self.directory]
        up = self.command + ["up", "--opentsdb", "--region-servers", "1", "--heap", "400"]
        for key, value in {**SETTINGS, **OPENTSDB_SETTINGS}.items():
            up += ["--opentsdb-setting", f"{key}={value}"]
        started = subprocess.run(up, check=True, stdout=subprocess.PIPE, text=True)
        self.address = find_address(started.stdout)

    def stop(self):
        subprocess.run(self.command + ["down"], check=True, stdout=subprocess.DEVNULL)


def find_address(output):
    """Host and port of OpenTSDB in the lines of `cluster up`."""
    for line in output.splitlines():
        words = line.split()
        if words and words[0] == "opentsdb":
            for word in words[1:]:
                host, separator, port = word.removeprefix("http://").rpartition(":")
                if separator and port.isdigit():
                    return host, int(port)
    raise SystemExit("clients: no address of OpenTSDB in:\n" + output)


def has_java():
    return shutil.which("java") is not None


def exchange(address, method, target, body=None, headers=None):
    """Status and body of one request."""
    connection = HTTPConnection(*address, timeout=60)
    try:
        connection.request(method, target, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
