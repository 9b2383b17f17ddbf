//! Both daemons write the same points into separate tables, which must be equal cell for cell. Then
//! both compact the rows, which must be equal again. Then the check of each must find nothing in
//! the tables of the other.

use std::{
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cluster::{Node, run_opentsdb_tool};
use serde_json::{Value, json};
use tokio::{task::block_in_place, time::sleep};

use crate::differential::{
    data::{BASE, Data},
    random::Random,
    servers::{Ours, Servers},
};
use crate::interop::{report::PartReport, run::Context, stored_cells::all_lines};
use crate::{
    TSDB,
    regions::ScenarioResult,
    table_set::{NO_COMPACTION, TableSet},
    tsd,
};

/// Longest wait until background work has made the tables equal.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Our compactions need not wait for other daemons.
const OUR_SETTINGS: [(&str, &str); 2] =
    [("tsd.storage.hold_seconds", "0.1"), ("tsd.storage.hbase.read_back_delay", "0")];

/// A form of stored points.
struct Layout {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// True if rows are compacted after the first comparison.
    compacts: bool,
}

const SALTED: [(&str, &str); 2] =
    [("tsd.storage.salt.width", "1"), ("tsd.storage.salt.buckets", "7")];
const LAYOUTS: [Layout; 4] = [
    Layout { name: "plain", settings: &[], compacts: true },
    Layout { name: "salted", settings: &SALTED, compacts: true },
    Layout {
        name: "appends",
        settings: &[("tsd.storage.enable_appends", "true")],
        compacts: false,
    },
    Layout {
        name: "salted-appends",
        settings: &[("tsd.storage.enable_appends", "true"), SALTED[0], SALTED[1]],
        compacts: false,
    },
];

/// Compares the tables of every layout.
pub(crate) async fn run(context: &mut Context<'_>) -> ScenarioResult<PartReport> {
    let mut report = PartReport::default();
    for layout in &LAYOUTS {
        compare_layout(context, layout, &mut report).await?;
    }
    Ok(report)
}

async fn compare_layout(
    context: &mut Context<'_>,
    layout: &Layout,
    report: &mut PartReport,
) -> ScenarioResult<()> {
    let prefix = |whose: &str| format!("{}-{}-{whose}", layout.name, context.round);
    let theirs = TableSet::with_meta(&prefix("theirs"), layout.settings);
    let ours = TableSet::with_meta(&prefix("ours"), layout.settings);
    theirs.create(context.cluster)?;
    ours.create(context.cluster)?;
    let opentsdb = theirs.restart_theirs(context.cluster, Node::OpenTsdb, &[]).await?;
    // The rows are old enough to be compacted at once.
    let daemon = context.start_ours(&ours.with(&NO_COMPACTION));
    let address = daemon.address();
    let servers = Servers::running(opentsdb, vec![Ours { name: "hbase", address }]);
    let seed = context.seed();
    let mut data = Data::new(seed, &mut Random::new(seed));
    block_in_place(|| data.store(&servers, false))?;
    let widths = widths();
    for address in [opentsdb, address] {
        tsd::put(address, "/api/put?sync", &widths)?;
    }
    let mut metrics: Vec<String> = data.metrics().into_iter().map(str::to_owned).collect();
    metrics.push("widths".to_owned());
    let written = equal_tables(context, (&theirs, &ours), |_| true, || Ok(())).await?;
    report_tables(report, &format!("{}, written", layout.name), &written);
    if layout.compacts {
        let before = written.0.len();
        let daemon = context.start_ours(&ours.with(&OUR_SETTINGS));
        let query = || query_all(&[opentsdb, daemon.address()], &metrics);
        let compacted =
            equal_tables(context, (&theirs, &ours), |cells| cells < before, query).await?;
        report_tables(report, &format!("{}, compacted", layout.name), &compacted);
        if compacted.0.len() == before {
            report.difference(format!("{}: no row was compacted", layout.name));
        }
        report.note(format!("{}: {before} cells, {} compacted", layout.name, compacted.0.len()));
    } else {
        report.note(format!("{}: {} cells", layout.name, written.0.len()));
    }
    drop(daemon);
    check_theirs(context, &ours, report).await?;
    check_ours(context, &theirs, report)
}

/// Integers and floats of every width at seconds and milliseconds, in one hour and across two.
fn widths() -> Value {
    let values = [
        json!(0),
        json!(-128),
        json!(127),
        json!(128),
        json!(-32_768),
        json!(32_768),
        json!(i32::MAX),
        json!(i64::from(i32::MAX) + 1),
        json!(i64::MIN),
        json!(1.5),
        json!(-0.25),
        json!(2.236_067_977_499_79),
        json!(1.0e20),
        json!(1.0e-300),
    ];
    let mut points = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let second = BASE + 3_520 + at as i64 * 10;
        for time in [second, (second + 1) * 1_000 + 250] {
            points.push(json!({
                "metric": "widths", "timestamp": time, "value": value, "tags": {"host": "web01"},
            }));
        }
    }
    Value::Array(points)
}

/// Reads both sets of tables until they are equal and `is_done` takes the number of cells, or time is up;
/// `work` is called before each read.
async fn equal_tables(
    context: &Context<'_>,
    (theirs, ours): (&TableSet, &TableSet),
    is_done: impl Fn(usize) -> bool,
    mut work: impl FnMut() -> ScenarioResult<()>,
) -> ScenarioResult<(Vec<String>, Vec<String>)> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        work()?;
        sleep(Duration::from_millis(500)).await;
        let theirs = all_lines(context.cluster, theirs).await?;
        let ours = all_lines(context.cluster, ours).await?;
        let is_equal = theirs == ours && is_done(theirs.len());
        if is_equal || Instant::now() > deadline {
            return Ok((theirs, ours));
        }
        sleep(Duration::from_millis(500)).await;
    }
}

fn report_tables(report: &mut PartReport, what: &str, (theirs, ours): &(Vec<String>, Vec<String>)) {
    report.cells += theirs.len() as u64;
    report.compare_lines(what, theirs, ours);
}

/// Reads all points of metrics, which makes both compact their rows.
fn query_all(addresses: &[SocketAddr], metrics: &[String]) -> ScenarioResult<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    for metric in metrics {
        let uri = format!("/api/query?start={}&end={now}&ms=true&m=none:{metric}", BASE - 3_600);
        for address in addresses {
            tsd::query(*address, &uri)?;
        }
    }
    Ok(())
}

/// OpenTSDB's checks of our tables.
async fn check_theirs(
    context: &mut Context<'_>,
    ours: &TableSet,
    report: &mut PartReport,
) -> ScenarioResult<()> {
    context.cluster.kill(Node::OpenTsdb)?;
    context.cluster.set_opentsdb_settings(&ours.with(&[]));
    for (class, args) in [("Fsck", &["--full-scan", "--threads=2"][..]), ("UidManager", &["fsck"])]
    {
        let run = run_opentsdb_tool(context.cluster, class, args).await?;
        report.answers += 1;
        if !run.success {
            report.difference(format!("OpenTSDB's {class} of our tables: {}", run.output));
        }
    }
    Ok(())
}

/// Our checks of OpenTSDB's tables.
fn check_ours(
    context: &Context<'_>,
    theirs: &TableSet,
    report: &mut PartReport,
) -> ScenarioResult<()> {
    for args in [&["fsck", "--full-scan"][..], &["uid", "fsck"]] {
        let mut tool = Command::new(TSDB);
        tool.args(args).envs(tsd::settings(context.cluster, &theirs.with(&[])));
        let output = block_in_place(|| tool.output())?;
        report.answers += 1;
        if !output.status.success() {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            report.difference(format!("our {args:?} of OpenTSDB's tables: {text}"));
        }
    }
    Ok(())
}
