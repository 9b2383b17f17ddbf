"""The clients: how each is installed, and what it does.

A client is a function that gets a `Run`, does its work through the recorder's address and returns its version. It
raises `Unavailable` if it cannot be had here. Times of points are fixed where a client can send them, so that
the answers to its queries are always the same.
"""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from servers import exchange

SCRIPTS = Path(__file__).parent / "scripts"
#: Time of the first point of clients that can send one.
SECOND = 1_600_000_000


class Run:
    """One client, between its installation and its end."""

    def __init__(self, packages, directory, port, seconds):
        self.packages = packages
        self.directory = directory
        self.port = port
        self.address = ("127.0.0.1", port)
        #: How long the clients run that send by a clock.
        self.seconds = seconds

    def script(self, command, environment=None):
        """Runs a script with host, port and first second."""
        command = [*command, "127.0.0.1", str(self.port), str(SECOND)]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout.strip()[-2000:])

    def python(self, packages, script, environment=None):
        """Installs packages and runs a script with them. Returns the version of the first one."""
        interpreter = self.packages.python(*packages)
        self.script([interpreter, str(SCRIPTS / script)], environment)
        version = f"from importlib.metadata import version; print(version({packages[0]!r}))"
        return subprocess.run([interpreter, "-c", version], stdout=subprocess.PIPE, text=True).stdout.strip()

    def daemon(self, command, environment=None, stop=signal.SIGTERM):
        """Runs a program for a while. Its log is shown if it ends by itself."""
        log = self.directory / "output"
        with open(log, "wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=self.directory)
        try:
            status = process.wait(self.seconds)
            text = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"ended by itself with status {status}:\n{text}")
        except subprocess.TimeoutExpired:
            process.send_signal(stop)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def potsdb(run):
    return run.python(["potsdb"], "potsdb_client.py")


def opentsdb_py(run):
    return run.python(["opentsdb-py", "requests"], "opentsdb_py_client.py")


def pyopentsdb(run):
    return run.python(["pyopentsdb"], "pyopentsdb_client.py")


def opentsdb_python_metrics(run):
    environment = {**os.environ, "OPENTSDB_HOSTNAME": "127.0.0.1", "OPENTSDB_PORT": str(run.port)}
    return run.python(["opentsdb-python-metrics"], "metrics_client.py", environment)


def node_version(directory, name):
    return json.loads((directory / "node_modules" / name / "package.json").read_text())["version"]


def npm_opentsdb(run):
    directory = run.packages.node("opentsdb")
    environment = {**os.environ, "NODE_PATH": str(directory / "node_modules")}
    run.script(["node", str(SCRIPTS / "opentsdb_client.js")], environment)
    return node_version(directory, "opentsdb")


def statsd(run):
    """StatsD with its backend: UDP in, lines out at each flush."""
    directory = run.packages.node("statsd", "statsd-opentsdb-backend")
    modules = directory / "node_modules"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        udp = probe.getsockname()[1]
    config = run.directory / "config.js"
    settings = {
        "opentsdbHost": "127.0.0.1",
        "opentsdbPort": run.port,
        "port": udp,
        "address": "127.0.0.1",
        "mgmt_port": 0,
        "mgmt_address": "127.0.0.1",
        "flushInterval": 1000,
        "backends": ["statsd-opentsdb-backend"],
        "opentsdb": {"legacyNamespace": False},
    }
    config.write_text(json.dumps(settings))
    sender = (
        "const socket = require('dgram').createSocket('udp4'); let step = 0;"
        f"setInterval(() => {{ step += 1; for (const line of ['hits:1|c', `time:${{step}}|ms`, `level:${{step / 8}}|g`])"
        f" socket.send('clients.statsd.' + line, {udp}, '127.0.0.1'); }}, 50);"
    )
    sending = subprocess.Popen(["node", "-e", sender])
    try:
        environment = {**os.environ, "NODE_PATH": str(modules)}
        run.daemon(["node", str(modules / "statsd" / "stats.js"), str(config)], environment)
    finally:
        sending.terminate()
        sending.wait()
    return f"{node_version(directory, 'statsd')}/{node_version(directory, 'statsd-opentsdb-backend')}"


def collectd(run):
    """collectd with its plug-in write_tsdb."""
    version = run.packages.debian("collectd-core")
    root = run.packages.root
    plugins = next(root.glob("usr/lib/collectd"), None) or next(root.glob("usr/lib/*/collectd"))
    config = run.directory / "collectd.conf"
    loaded = "\n".join(f"LoadPlugin {name}" for name in ("cpu", "load", "memory", "interface", "write_tsdb"))
    config.write_text(f"""
Hostname "collectd.test"
FQDNLookup false
BaseDir "{run.directory}"
PIDFile "{run.directory}/collectd.pid"
PluginDir "{plugins}"
TypesDB "{root}/usr/share/collectd/types.db"
Interval 1
{loaded}
<Plugin write_tsdb>
    <Node>
        Host "127.0.0.1"
        Port "{run.port}"
        HostTags "source=collectd"
        StoreRates false
        AlwaysAppendDS false
    </Node>
</Plugin>
""")
    # A clean exit sends the values that it has buffered.
    run.daemon([str(root / "usr/sbin/collectd"), "-f", "-C", str(config)], run.packages.debian_environment())
    return version


def netdata(run):
    """netdata's exporting engine, by telnet lines and by HTTP."""
    version = run.packages.debian("netdata-core")
    root = run.packages.root
    for name in ("cache", "lib", "run", "logs", "web", "plugins"):
        (run.directory / name).mkdir()
    (run.directory / "netdata.conf").write_text(f"""
[global]
    run as user = {os.environ.get("USER", "root")}
    hostname = netdata.test
[directories]
    config = {run.directory}
    stock config = {root}/usr/lib/netdata/conf.d
    cache = {run.directory}/cache
    lib = {run.directory}/lib
    log = {run.directory}/logs
    web = {run.directory}/web
    plugins = {run.directory}/plugins
[db]
    mode = ram
[web]
    mode = none
[ml]
    enabled = no
[statsd]
    enabled = no
[plugins]
    proc = yes
    diskspace = no
    cgroups = no
    tc = no
    timex = no
    idlejitter = no
    enable running new plugins = no
""")
    destinations = "\n".join(
        f"""
[opentsdb:{kind}]
    enabled = yes
    destination = 127.0.0.1:{run.port}
    data source = {source}
    prefix = clients.netdata.{name}
    hostname = netdata.test
    update every = 1
    send charts matching = system.load system.cpu system.ram
    send automatic labels = no
"""
        for kind, name, source in (("telnet:lines", "telnet", "as collected"), ("http:bodies", "http", "average"))
    )
    (run.directory / "exporting.conf").write_text("[exporting:global]\n    enabled = yes\n" + destinations)
    command = [str(root / "usr/sbin/netdata"), "-D", "-c", str(run.directory / "netdata.conf")]
    run.daemon(command, {**run.packages.debian_environment(), "NETDATA_USER_CONFIG_DIR": str(run.directory)})
    return version


def icinga2(run):
    """icinga2's OpenTsdbWriter, with the built-in check of random numbers."""
    version = run.packages.debian("icinga2-bin")
    root = run.packages.root
    program = next(root.glob("usr/lib/*/icinga2/sbin/icinga2"))
    for name in ("data", "log", "run", "cache", "spool"):
        (run.directory / name).mkdir()
    config = run.directory / "icinga2.conf"
    config.write_text(f"""
include <itl>
object CheckerComponent "checker" {{ }}
object OpenTsdbWriter "opentsdb" {{
  host = "127.0.0.1"
  port = {run.port}
}}
object Host "icinga.test" {{
  check_command = "dummy"
  check_interval = 1s
  vars.dummy_text = "up|users=3;5;10;0;20 used=51.5% rate=1.25"
}}
object Service "random" {{
  host_name = "icinga.test"
  check_command = "random"
  check_interval = 1s
}}
""")
    user = os.environ.get("USER", "root")
    settings = {
        "RunAsUser": user,
        "RunAsGroup": user,
        "DataDir": run.directory / "data",
        "LogDir": run.directory / "log",
        "InitRunDir": run.directory / "run",
        "CacheDir": run.directory / "cache",
        "SpoolDir": run.directory / "spool",
        "PidPath": run.directory / "run/icinga2.pid",
    }
    command = [str(program), "daemon", "--no-stack-rlimit", "-c", str(config)]
    command += ["-I", str(root / "usr/share/icinga2/include")]
    for name, value in settings.items():
        command += ["--define", f"{name}={value}"]
    run.daemon(command, run.packages.debian_environment())
    return version


def put_series(address, metric):
    """Points for clients that only ask."""
    points = [
        {"metric": metric, "timestamp": SECOND + step, "value": step % 37, "tags": {"host": host, "dc": dc}}
        for step in range(0, 600, 5)
        for host, dc in (("web01", "lga"), ("web02", "lga"), ("web03", "fra"))
    ]
    body = json.dumps(points)
    status, answer = exchange(address, "POST", "/api/put?details", body, {"Content-Type": "application/json"})
    if status != 200:
        raise RuntimeError(f"{status} {answer!r}")


def check_tsd(run):
    """The request of the Nagios check that comes with OpenTSDB, and how it reads the answer."""
    metric = "clients.check_tsd.load"
    put_series(run.address, metric)
    questions = [
        ("avg", "", "{host=web01}", 100, 0),
        ("sum", "", "{host=*}", 30, 2),
        ("sum", "60s-avg-none:", "{host=*}", 30, 0),
        ("sum", "60s-max-zero:", "{host=*}", 30, 2),
        ("none", "", "", 37, 0),
        ("max", "rate:", "{dc=lga}", 0, 2),
    ]
    for method, middle, tags, limit, state in questions:
        target = f"/q?start={SECOND}&end={SECOND + 599}&m={method}:{middle}{metric}{tags}&ascii&nagios"
        status, body = exchange(run.address, "GET", target)
        if status not in (200, 202) or not body.strip():
            raise RuntimeError(f"{target}: {status} {body!r}")
        found = 0
        for line in body.decode().splitlines():
            name, second, value, *_ = line.split()
            number = float(value) if "." in value else int(value)
            # Whole hours are printed, as by OpenTSDB: the check skips what is outside.
            if name != metric or not SECOND - 3600 <= int(second) <= SECOND + 3600:
                raise RuntimeError(line)
            found = max(found, 2 if number > limit else 0)
        if found != state:
            raise RuntimeError(f"{target}: state {found}, expected {state}")
    return "2.4 (its requests)"


def grafana(run):
    """The requests of Grafana's data source, for each of the versions of OpenTSDB that it can be set to."""
    put_series(run.address, "clients.grafana.load")
    for line in (Path(__file__).parent / "grafana.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        method, target, body = (line.split(" ", 2) + [""])[:3]
        headers = {"Accept": "application/json, text/plain, */*"}
        if body:
            headers["Content-Type"] = "application/json"
        status, answer = exchange(run.address, method, target, body or None, headers)
        if status != 200:
            raise RuntimeError(f"{line}: {status} {answer[:300]!r}")
    return "versions 1-4"


#: Name, function, and whether its requests and answers are always the same.
CLIENTS = [
    ("potsdb", potsdb, True),
    ("opentsdb-py", opentsdb_py, True),
    ("pyopentsdb", pyopentsdb, True),
    ("opentsdb-python-metrics", opentsdb_python_metrics, True),
    ("npm opentsdb", npm_opentsdb, True),
    ("statsd", statsd, False),
    ("collectd", collectd, False),
    ("netdata", netdata, False),
    ("icinga2", icinga2, False),
    ("check_tsd", check_tsd, True),
    ("grafana", grafana, True),
]
