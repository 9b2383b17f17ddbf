"""Runs the clients against a daemon and prints a table. The parts are in the modules beside this one."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from clients import CLIENTS, Run
from packages import Packages, Unavailable
from recorder import Recorder
from servers import Daemon, OpenTsdb, has_java
from verify import answers, compare_answers, read_back, replay_points, wait_for_points

EXPECTED = Path(__file__).parent / "expected"
HEADER = ("client", "version", "points sent", "read back", "queries", "result")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tests/clients.sh", description=__doc__)
    names = [name for name, _, _ in CLIENTS]
    parser.add_argument("--only", action="append", choices=names, help="run this client; may be repeated")
    parser.add_argument("--seconds", type=int, default=20, help="how long clients run that send by a clock (20)")
    parser.add_argument("--without-java", action="store_true", help="compare queries with the recorded answers")
    parser.add_argument("--record", action="store_true", help="record the answers of the real OpenTSDB")
    parser.add_argument("--keep", action="store_true", help="keep the temporary directory")
    return parser.parse_args()


def main():
    options = parse_arguments()
    directory = Path(tempfile.mkdtemp(prefix="clients-"))
    daemon, theirs = None, None
    try:
        daemon = Daemon(directory)
        if has_java() and not options.without_java:
            print("clients: starting a real OpenTSDB", flush=True)
            theirs = OpenTsdb(directory)
        rows = []
        for name, client, is_fixed in CLIENTS:
            if not options.only or name in options.only:
                rows.append(run_client(name, client, is_fixed, directory, daemon, theirs, options))
                print(f"clients: {name}: {rows[-1][-1]}", flush=True)
        daemon.stop()
    finally:
        if daemon:
            daemon.kill()
        if theirs:
            theirs.stop()
        if options.keep:
            print(f"clients: {directory} is kept")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    judge = "a real OpenTSDB" if theirs else "recorded answers"
    print_table(rows)
    failed = sum(row[-1].startswith("FAILED") for row in rows)
    print(f"{len(rows)} clients, {failed} failed; queries were compared with {judge}")
    return 1 if failed else 0


def run_client(name, client, is_fixed, directory, daemon, theirs, options):
    """Row of the table of one client."""
    own = directory / name.replace(" ", "-")
    own.mkdir()
    recorder = Recorder(daemon.address)
    run = Run(Packages(own), own, recorder.port, options.seconds)
    version, error = "", None
    try:
        version = client(run)
    except Unavailable as reason:
        return (name, "", "", "", "", f"not run: {reason}")
    except Exception as failure:  # Whatever a client does wrong is its result.
        error = f"{type(failure).__name__}: {failure}"
    sent = recorder.finish()
    equal, differences = read_back(daemon.address, sent)
    wanted = len({(point.metric, point.tags, point.time_ms) for point in sent.points})
    if error:
        differences.insert(0, error)
    if wanted == 0:
        differences.append("no point was sent")
    differences += compare_queries(name, is_fixed, sent, daemon, theirs, options)
    if len(differences) > 0:
        print(f"clients: {name}:", *differences[:10], sep="\n    ", file=sys.stderr)
    result = f"FAILED: {len(differences)} differences" if differences else "ok"
    if sent.refused:
        result += f"; {len(sent.refused)} lines are no points"
    return (name, version, str(wanted), str(equal), str(len(sent.requests)), result)


def compare_queries(name, is_fixed, sent, daemon, theirs, options):
    """Differences of the answers to a client's queries from those of OpenTSDB."""
    path = EXPECTED / f"{name.replace(' ', '-')}.json"
    if theirs:
        replay_points(theirs.address, sent)
        wait_for_points(theirs.address, sent)
        expected = answers(theirs.address, sent)
        if options.record and is_fixed and expected:
            lines = ",\n".join(json.dumps(one, sort_keys=True) for one in expected)
            path.write_text(f"[\n{lines}\n]\n")
    elif not sent.requests:
        return []
    elif is_fixed and path.exists():
        expected = json.loads(path.read_text())
    else:
        return ["there are no recorded answers"]
    return compare_answers(answers(daemon.address, sent), expected)


def print_table(rows):
    table = [HEADER, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[2])
    sys.exit(main())
