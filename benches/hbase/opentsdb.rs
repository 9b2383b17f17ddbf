//! OpenTSDB beside the daemon: what a point costs each.

use std::{
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Options,
    figures::{self, Round, thousands},
    load::Lines,
    process,
    send::{self, Protocol},
    site::Site,
    tsd,
};

const CONNECTIONS: u32 = 8;

/// Puts over HTTP into both; prints the table of figures.
pub(crate) fn run(site: &Site, directory: &Path, options: &Options) {
    let lines = Lines { series: options.series, steps: 0..options.steps };
    // An hour of their own, for hours are what is asked for.
    let warm = Lines { series: options.series, steps: 720..730 };
    let address = site.cluster().opentsdb_address().expect("OpenTSDB");
    let address: SocketAddr = address.parse().expect("an address");
    let theirs = {
        put(address, &warm);
        wait_for(address, &warm);
        let (cpu, server) = (site.opentsdb_cpu(), site.server_cpu());
        let seconds = put(address, &lines);
        // It has answered before it writes; its buffers leave within a second or so.
        thread::sleep(Duration::from_secs(3));
        let round = Round::of(
            lines.points(),
            seconds,
            site.opentsdb_cpu() - cpu,
            site.server_cpu() - server,
        );
        wait_for(address, &lines);
        tsd::verify(address, &lines);
        round
    };
    tsd::create_tables(site);
    let daemon = tsd::start(site, &directory.join("beside"), &[]);
    put(daemon.address(), &warm);
    let (cpu, server) = (process::cpu_seconds(daemon.pid()), site.server_cpu());
    let seconds = put(daemon.address(), &lines);
    let cpu = process::cpu_seconds(daemon.pid()) - cpu;
    let ours = Round::of(lines.points(), seconds, cpu, site.server_cpu() - server);
    tsd::verify(daemon.address(), &lines);
    assert!(daemon.terminate().success(), "a clean end");
    figures::head(&[
        "HTTP, 50 points a request, 8 connections",
        "points/s",
        "TSD cpu-s per M",
        "server cpu-s per M",
    ]);
    let rows = [
        ("OpenTSDB 2.4.1, answers before it writes", theirs),
        ("Saltern, acknowledged by HBase", ours),
    ];
    for (name, round) in rows {
        figures::row(&[
            name.to_owned(),
            thousands(round.rate),
            format!("{:.2}", round.client),
            format!("{:.2}", round.server),
        ]);
    }
    figures::row(&[
        "ratio".to_owned(),
        format!("{:.2}", ours.rate / theirs.rate),
        format!("**{:.3}**", ours.client / theirs.client),
        format!("{:.2}", ours.server / theirs.server),
    ]);
}

fn put(address: SocketAddr, lines: &Lines) -> f64 {
    let bodies = lines.render(Protocol::Http, CONNECTIONS);
    let start = Instant::now();
    send::send(address, Protocol::Http, bodies, 1);
    start.elapsed().as_secs_f64()
}

/// Waits until the points can be read.
fn wait_for(address: SocketAddr, lines: &Lines) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_there = || {
        let mut totals = lines.totals().into_iter();
        totals.all(|(metric, total)| {
            tsd::ask(address, lines, &format!("sum:1h-count:{metric}")) as u64 == total.count
        })
    };
    while !is_there() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(500));
    }
}
