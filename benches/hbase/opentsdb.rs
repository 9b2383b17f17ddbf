//! Compares OpenTSDB and the daemon: rate and CPU cost of puts over HTTP.

use std::{
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tsd_testkit::{
    process,
    put_load::{PutProtocol, send, sum_of_points},
};

use crate::{
    Options,
    bench_cluster::BenchCluster,
    daemon,
    point_load::PointLoad,
    report::{self, Measurement, thousands},
};

const CONNECTIONS: u32 = 8;

/// Puts over HTTP into both; prints the table.
pub(crate) fn run(cluster: &BenchCluster, directory: &Path, options: &Options) {
    let lines = PointLoad { series: options.series, steps: 0..options.steps };
    // In a separate hour, because the check queries whole hours.
    let warm = PointLoad { series: options.series, steps: 720..730 };
    let address = cluster.processes().opentsdb_address().expect("OpenTSDB");
    let address: SocketAddr = address.parse().expect("an address");
    let theirs = {
        put(address, &warm);
        wait_for(address, &warm);
        let (cpu, server) = (cluster.opentsdb_cpu(), cluster.region_server_cpu());
        let seconds = put(address, &lines);
        // OpenTSDB answers before it writes; it flushes its buffers within about a second.
        thread::sleep(Duration::from_secs(3));
        let round = Measurement::new(
            lines.points(),
            seconds,
            cluster.opentsdb_cpu() - cpu,
            cluster.region_server_cpu() - server,
        );
        wait_for(address, &lines);
        daemon::verify(address, &lines);
        round
    };
    daemon::create_tables(cluster);
    let tsdb = daemon::start(cluster, &directory.join("beside"), &[]);
    put(tsdb.address(), &warm);
    let (cpu, server) = (process::cpu_seconds(tsdb.pid()), cluster.region_server_cpu());
    let seconds = put(tsdb.address(), &lines);
    let cpu = process::cpu_seconds(tsdb.pid()) - cpu;
    let ours = Measurement::new(lines.points(), seconds, cpu, cluster.region_server_cpu() - server);
    daemon::verify(tsdb.address(), &lines);
    assert!(tsdb.terminate().success(), "a clean shutdown");
    report::print_head(&[
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
        report::print_row(&[
            name.to_owned(),
            thousands(round.rate),
            format!("{:.2}", round.client_cpu),
            format!("{:.2}", round.server_cpu),
        ]);
    }
    report::print_row(&[
        "ratio".to_owned(),
        format!("{:.2}", ours.rate / theirs.rate),
        format!("**{:.3}**", ours.client_cpu / theirs.client_cpu),
        format!("{:.2}", ours.server_cpu / theirs.server_cpu),
    ]);
}

fn put(address: SocketAddr, lines: &PointLoad) -> f64 {
    let loads = lines.render(PutProtocol::Http, CONNECTIONS);
    let start = Instant::now();
    send(address, PutProtocol::Http, loads);
    start.elapsed().as_secs_f64()
}

/// Waits until all points are readable.
fn wait_for(address: SocketAddr, lines: &PointLoad) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_readable = || {
        let (start, end) = lines.seconds();
        lines.totals().iter().all(|total| {
            let m = format!("sum:1h-count:{}", total.metric);
            sum_of_points(address, start, end, &m) as u64 == total.count
        })
    };
    while !is_readable() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(500));
    }
}
