//! The daemon on HBase: an acknowledged put at light load, and points as fast as they are taken, each
//! with HBase before its acknowledgement or with the log, the rows held.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Options,
    cells::STEP_SECS,
    daemon::Daemon,
    figures::{self, Round, median, percentile, ratio, thousands},
    load::Lines,
    process,
    send::{self, Body, Protocol},
    site::Site,
    socket, tsd,
    writes::Baseline,
};

/// Requests of the light load, and the time between two of them.
const REQUESTS: u32 = 500;
const BETWEEN: Duration = Duration::from_millis(20);

/// Telnet connections.
const CONNECTIONS: u32 = 4;

/// Series of the loads that are held.
const HELD_SERIES: u32 = 100_000;
/// Points of a row that leave together, steps of the load, and how often the rival's rate is offered.
const HELD: [(u32, u32, f64); 2] = [(6, 150, 4.4), (60, 420, 10.8)];
/// Part of `tsd.storage.hold_seconds` after which rows begin to leave.
const LEAVES_AFTER: f64 = 0.75;

/// Acknowledged puts at light load; prints the table of figures.
pub(crate) fn light(site: &Site, directory: &Path) {
    figures::head(&["put of 50 points, 50 a second", "p50, ms", "p99, ms", "worst, ms"]);
    for ack in ["storage", "log"] {
        tsd::create_tables(site);
        let data = directory.join(format!("light-{ack}"));
        let daemon = tsd::start(site, &data, &[("tsd.storage.ack", ack)]);
        // An hour of their own, for hours are what is asked for.
        let warm = Lines { series: 1_000, steps: 720..725 };
        let lines = Lines { series: 1_000, steps: 0..REQUESTS * 50 / 1_000 };
        put_slowly(daemon.address(), &warm, Duration::ZERO);
        let mut times = put_slowly(daemon.address(), &lines, BETWEEN);
        tsd::verify(daemon.address(), &lines);
        figures::row(&[
            format!("acknowledged by {}", if ack == "log" { "the log" } else { "HBase" }),
            format!("{:.1}", percentile(&mut times, 0.5)),
            format!("{:.1}", percentile(&mut times, 0.99)),
            format!("{:.1}", percentile(&mut times, 1.0)),
        ]);
        end(daemon);
    }
}

/// Milliseconds of each request.
fn put_slowly(address: SocketAddr, lines: &Lines, between: Duration) -> Vec<f64> {
    let body = lines.render(Protocol::Http, 1).pop().expect("a connection");
    let mut stream = socket::connect(address);
    let start = Instant::now();
    let mut times = Vec::new();
    let mut from = 0;
    for (at, to) in body.request_ends.into_iter().enumerate() {
        thread::sleep((start + between * at as u32).saturating_duration_since(Instant::now()));
        let asked = Instant::now();
        stream.write_all(&body.bytes[from..to]).expect("send");
        from = to;
        let mut answer = [0; 4 << 10];
        let got = stream.read(&mut answer).expect("an answer");
        times.push(asked.elapsed().as_secs_f64() * 1e3);
        let answer = &answer[..got];
        assert!(answer.starts_with(b"HTTP/1.1 204"), "{}", String::from_utf8_lossy(answer));
    }
    times
}

/// Points as fast as they are taken, each a cell, acknowledged by HBase; by turns with the bulk
/// client. Prints the table of figures.
pub(crate) fn stored(site: &Site, directory: &Path, baseline: &mut Baseline, options: &Options) {
    let load = options.load(1);
    let lines = Lines { series: load.series, steps: 0..load.steps };
    figures::head(&[
        "points acknowledged by HBase",
        "points/s",
        "× BufferedMutator's",
        "cells a call",
        "TSD cpu-s per M",
        "server cpu-s per M",
    ]);
    for (protocol, connections) in
        [(Protocol::Telnet, CONNECTIONS), (Protocol::Http, 32), (Protocol::Http, 128)]
    {
        tsd::create_tables(site);
        let data = directory.join(format!("stored-{protocol:?}-{connections}"));
        let daemon = tsd::start(site, &data, &[]);
        // Names get their numbers, and code and caches are warm.
        let warm = Lines { series: load.series, steps: 0..4 };
        all_at_once(&daemon, &warm);
        let (mut java, mut ours) = (Vec::new(), Vec::new());
        let before = tsd::batches(daemon.address());
        for _ in 0..options.rounds.min(2) {
            java.push(baseline.round(site, load));
            tsd::forget_points(site);
            let bodies = lines.render(protocol, connections);
            let (cpu, server) = (process::cpu_seconds(daemon.pid()), site.server_cpu());
            let start = Instant::now();
            send::send(daemon.address(), protocol, bodies, 1);
            let seconds = start.elapsed().as_secs_f64();
            let cpu = process::cpu_seconds(daemon.pid()) - cpu;
            let server = site.server_cpu() - server;
            tsd::verify(daemon.address(), &lines);
            ours.push(Round::of(lines.points(), seconds, cpu, server));
        }
        let after = tsd::batches(daemon.address());
        figures::row(&[
            format!("{}, {connections} connections", protocol.name()),
            thousands(median(&ours, |r| r.rate)),
            format!("**{:.2}**", ratio(&ours, &java, |r| r.rate)),
            format!("{:.0}", (after.1 - before.1) / (after.0 - before.0)),
            format!("{:.2}", median(&ours, |r| r.client)),
            format!("{:.2}", median(&ours, |r| r.server)),
        ]);
        end(daemon);
    }
}

/// Points acknowledged by the log, their rows held until they leave with so many points each. Prints
/// the table of figures.
///
/// Time runs faster than it does: a series has a point every ten seconds by its timestamps, the sender
/// goes through them so many times as fast, and rows are held for so much less time. Rows begin to
/// leave at three quarters of `tsd.storage.hold_seconds`, so six points of a row leave together if that
/// is 80 s. The clock stops when the daemon, told to end, has brought everything to HBase and is gone.
/// Then another daemon, without a log, is asked, and the cells in HBase are counted.
pub(crate) fn held(site: &Site, directory: &Path, baseline: &mut Baseline, options: &Options) {
    figures::head(&[
        "acknowledged by the log, 100 000 series, a point every 10 s",
        "time runs",
        "offered, points/s",
        "acknowledged, points/s",
        "points a cell in HBase",
        "points/s until HBase has all",
        "× BufferedMutator's, one point a cell",
        "TSD cpu-s per M",
        "server cpu-s per M",
    ]);
    for (wanted, steps, times) in HELD {
        for round in 0..options.held_rounds {
            let java = baseline.round(site, options.load(1));
            let offered = options.offered.unwrap_or(java.rate * times);
            let data = directory.join(format!("held-{wanted}-{round}"));
            let held = held_round(site, &data, wanted, steps, offered);
            // Seconds that a row is held where time is what it is.
            let real = f64::from(wanted * STEP_SECS) / LEAVES_AFTER;
            figures::row(&[
                format!("held for {real:.0} s, {wanted} points"),
                format!("{:.0} × as fast", real / held.hold),
                thousands(held.offered),
                thousands(held.acknowledged),
                format!("{:.1}", held.density),
                thousands(held.round.rate),
                format!("**{:.2}**", held.round.rate / java.rate),
                format!("{:.3}", held.round.client),
                format!("{:.3}", held.round.server),
            ]);
        }
    }
}

/// What came of a load that was held.
struct Held {
    round: Round,
    /// Seconds.
    hold: f64,
    /// Points a second.
    offered: f64,
    acknowledged: f64,
    /// Points a cell, as HBase has them.
    density: f64,
}

fn held_round(site: &Site, data: &Path, wanted: u32, steps: u32, offered: f64) -> Held {
    tsd::create_tables(site);
    let hold = f64::from(wanted) * f64::from(HELD_SERIES) / LEAVES_AFTER / offered;
    let settings = [
        ("tsd.storage.ack", "log"),
        ("tsd.storage.hold_seconds", &format!("{hold:.3}")),
        ("tsd.storage.memtable.size", "2147483648"),
        ("tsd.storage.log.segment_size", "1073741824"),
    ];
    let daemon = tsd::start(site, data, &settings);
    // Names get their numbers in an hour that nobody counts.
    let warm = Lines { series: HELD_SERIES, steps: 720..721 };
    all_at_once(&daemon, &warm);
    let lines = Lines { series: HELD_SERIES, steps: 0..steps };
    let bodies = lines.render(Protocol::Telnet, CONNECTIONS);
    let between = Duration::from_secs_f64(f64::from(HELD_SERIES) / offered);
    let (cpu, server) = (process::cpu_seconds(daemon.pid()), site.server_cpu());
    let start = Instant::now();
    send_steps(daemon.address(), bodies, start, between);
    // Everything is acknowledged; what is held leaves.
    let acknowledged = start.elapsed().as_secs_f64();
    daemon.signal("TERM");
    let mut used = 0.0;
    let pid = daemon.pid();
    while let Some(now) = process::cpu_seconds_of_running(pid) {
        used = now;
        thread::sleep(Duration::from_millis(5));
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(daemon.wait().success(), "a clean end");
    let server = site.server_cpu() - server;
    let cells = tsd::stored_cells(site) - u64::from(HELD_SERIES);
    let reader = tsd::start(site, &data.join("reader"), &[]);
    tsd::verify(reader.address(), &lines);
    end(reader);
    let points = lines.points();
    Held {
        round: Round::of(points, seconds, used - cpu, server),
        hold,
        offered,
        acknowledged: points as f64 / acknowledged,
        density: points as f64 / cells as f64,
    }
}

/// Each step when it is due, or as soon after as it is taken.
fn send_steps(address: SocketAddr, bodies: Vec<Body>, start: Instant, between: Duration) {
    let senders: Vec<_> = bodies
        .into_iter()
        .map(|body| {
            let mut stream = socket::connect(address);
            thread::spawn(move || {
                let mut from = 0;
                for (at, to) in body.request_ends.into_iter().enumerate() {
                    let due = start + between * at as u32;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    stream.write_all(&body.bytes[from..to]).expect("send");
                    from = to;
                }
                stream.shutdown(Shutdown::Write).expect("half-close");
                let mut said = Vec::new();
                stream.read_to_end(&mut said).expect("the end");
                assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
            })
        })
        .collect();
    for sender in senders {
        sender.join().expect("a sender");
    }
}

fn all_at_once(daemon: &Daemon, lines: &Lines) {
    let bodies = lines.render(Protocol::Telnet, CONNECTIONS);
    send::send(daemon.address(), Protocol::Telnet, bodies, 1);
    tsd::verify(daemon.address(), lines);
}

fn end(daemon: Daemon) {
    assert!(daemon.terminate().success(), "a clean end");
}
