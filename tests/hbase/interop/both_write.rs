//! Two of our daemons and an OpenTSDB write and compact the same rows at the same time. No point of ours may
//! be lost, and no row may become unreadable. Corrections may be lost at most as often as between two
//! OpenTSDBs.

use std::{net::SocketAddr, time::Duration};

use cluster::Node;
use tokio::{
    task::block_in_place,
    time::{Instant, sleep},
};
use tsd_testkit::{Daemon, metric};

use crate::interop::{
    report::PartReport,
    row_load::{LoadShape, LossCounts, RowLoad, RowWriter},
    run::Context,
};
use crate::{
    regions::ScenarioResult,
    row_history::{PointPlace, row_history},
    table_set::{COMPACTION, NO_COMPACTION, TableSet},
};

/// Longest time after the last write until everything is correct.
const SETTLE: Duration = Duration::from_secs(90);
/// Pause between two comparisons; longer than the time of an OpenTSDB from the read of a row to its delete.
const PAUSE: Duration = Duration::from_secs(4);
/// Comparisons in a row without a difference: a value may be hidden after it was read.
const CONFIRMATIONS: u32 = 3;
/// Settings without a compacting OpenTSDB: nothing is read back, and rows are compacted while they are
/// written.
const ALONE: [(&str, &str); 1] = [("tsd.storage.hbase.read_back_delay", "0")];
/// Settings with OpenTSDB: longer than a compaction of OpenTSDB on a busy machine.
const BESIDE: [(&str, &str); 1] = [("tsd.storage.hbase.read_back_delay", "12")];
const STORAGE: [(&str, &str); 2] =
    [("tsd.storage.ack", "storage"), ("tsd.storage.fix_duplicates", "true")];
const LOG: [(&str, &str); 1] = [("tsd.storage.ack", "log")];

/// Losses of two OpenTSDBs that compact their own rows.
struct Baseline {
    corrections: u64,
    stale: u64,
    points: u64,
    missing: u64,
    wrong: u64,
}

/// Runs every pair of daemons.
pub(crate) async fn run(context: &mut Context<'_>) -> ScenarioResult<PartReport> {
    let mut report = PartReport::default();
    let set = TableSet::with_meta(&format!("both-{}", context.round), &[]);
    set.create(context.cluster)?;
    let baseline = two_opentsdbs(context, &set, &mut report).await?;
    beside_opentsdb(context, &set, Some(&baseline), &mut report).await?;
    beside_opentsdb(context, &set, None, &mut report).await?;
    Ok(report)
}

async fn two_opentsdbs(
    context: &mut Context<'_>,
    set: &TableSet,
    report: &mut PartReport,
) -> ScenarioResult<Baseline> {
    let mut writers = Vec::new();
    for (node, name) in [(Node::OpenTsdb, "OpenTSDB"), (Node::SecondOpenTsdb, "another OpenTSDB")] {
        let address = set.restart_theirs(context.cluster, node, &COMPACTION).await?;
        writers.push(RowWriter { name, address, is_ours: false });
    }
    let readers: Vec<_> = writers.iter().map(|writer| writer.address).collect();
    let shape = shape(context);
    let load = block_in_place(|| RowLoad::run("both.theirs", &writers, &readers, shape));
    let lost = settled(&load, &readers, &[], report).await;
    print_evidence(context, set, &load, lost.iter().filter(|counts| counts.wrong > 0)).await?;
    context.cluster.kill(Node::SecondOpenTsdb)?;
    let (own, _) = lost.split_at(writers.len());
    let sum = |of: fn(&LossCounts) -> u64| own.iter().map(of).sum::<u64>();
    let baseline = Baseline {
        corrections: load.corrections() * writers.len() as u64,
        stale: sum(|counts| counts.stale),
        points: load.points() * writers.len() as u64,
        missing: sum(|counts| counts.missing),
        wrong: sum(|counts| counts.wrong),
    };
    report.answers += baseline.points;
    report.note(format!(
        "two OpenTSDBs that compact: {} of {} corrections and {} of {} points lost, {} wrong values",
        baseline.stale, baseline.corrections, baseline.missing, baseline.points, baseline.wrong
    ));
    Ok(baseline)
}

/// Runs both of our daemons together with an OpenTSDB, which compacts if there is a baseline to compare with.
async fn beside_opentsdb(
    context: &mut Context<'_>,
    set: &TableSet,
    baseline: Option<&Baseline>,
    report: &mut PartReport,
) -> ScenarioResult<()> {
    let (what, metric_name, theirs, ours) = match baseline {
        Some(_) => ("all compact", "both.all", &COMPACTION[..], &BESIDE[..]),
        None => ("only ours compact", "both.ours", &NO_COMPACTION[..], &ALONE[..]),
    };
    let opentsdb = set.restart_theirs(context.cluster, Node::OpenTsdb, theirs).await?;
    let hold = context.options.hold.clone();
    let hold = [("tsd.storage.hold_seconds", hold.as_str())];
    let start = |context: &mut Context<'_>, ack: &[(&str, &str)]| {
        context.start_ours(&set.with(&[&COMPACTION[..], &hold[..], ours, ack].concat()))
    };
    let daemons = [start(context, &STORAGE), start(context, &LOG)];
    let ours = |name, daemon: &Daemon| RowWriter { name, address: daemon.address(), is_ours: true };
    let writers = [
        ours("ours, ack = storage", &daemons[0]),
        ours("ours, ack = log", &daemons[1]),
        RowWriter { name: "OpenTSDB", address: opentsdb, is_ours: false },
    ];
    let readers: Vec<_> = writers.iter().map(|writer| writer.address).collect();
    let shape = shape(context);
    let load = block_in_place(|| RowLoad::run(metric_name, &writers, &readers, shape));
    for failure in load.failures().iter().take(3) {
        report.difference(format!("{what}: not acknowledged: {failure}"));
    }
    let lost = settled(&load, &readers, &writers, report).await;
    print_evidence(context, set, &load, lost.iter().filter(|counts| !counts.is_zero())).await?;
    for (writer, lost) in writers.iter().zip(&lost) {
        let (points, corrections) = (load.points(), load.corrections());
        report.answers += points * readers.len() as u64;
        report.note(format!(
            "{what}: {}: {} of {corrections} corrections and {} of {points} points lost, {} wrong values",
            writer.name, lost.stale, lost.missing, lost.wrong
        ));
        // The share of lost corrections must not exceed OpenTSDB's share.
        let is_allowed = baseline
            .is_some_and(|theirs| lost.stale * theirs.corrections <= theirs.stale * corrections);
        let is_bad = lost.missing > 0 || lost.wrong > 0 || (lost.stale > 0 && !is_allowed);
        // OpenTSDB may lose its own puts while it compacts the row.
        if is_bad && (writer.is_ours || baseline.is_none()) {
            report.difference(format!("{what}: {}: {lost:?}", writer.name));
        }
    }
    let of_all = lost[writers.len()];
    if of_all.missing > 0 || of_all.wrong > 0 {
        report.difference(format!("{what}: instants of all writers: {of_all:?}"));
    }
    let compacted = |daemon: &Daemon| metric(daemon.address(), "tsd_compaction_writes_total");
    let compacted: f64 = daemons.iter().filter_map(compacted).sum();
    report.note(format!("{what}: our daemons wrote {compacted} compacted columns"));
    // If an OpenTSDB compacts, it is usually the first.
    if compacted == 0.0 && baseline.is_none() {
        report.difference(format!("{what}: our daemons have compacted nothing"));
    }
    Ok(())
}

fn shape(context: &Context<'_>) -> LoadShape {
    let pause = Duration::from_millis(context.options.pause_ms);
    LoadShape { hours: context.options.hours, pause, time: context.load_time() }
}

/// Prints one loss of each writer: the acknowledged point, and all its cells that HBase remembers.
async fn print_evidence(
    context: &Context<'_>,
    set: &TableSet,
    load: &RowLoad,
    lost: impl Iterator<Item = &LossCounts>,
) -> ScenarioResult<()> {
    for loss in lost.filter_map(|counts| counts.first) {
        for line in load.evidence(loss) {
            println!("interop:   {line}");
        }
        let (table, host) = (set.prefix(), format!("h{}", loss.host));
        let place = PointPlace { table, metric: load.metric(), host: &host, at_ms: loss.at_ms };
        for cell in row_history(context.cluster, &place).await? {
            println!("interop:     {cell}");
        }
    }
    Ok(())
}

/// Compares until all readers return all points of our writers several times in a row, or the time is up.
/// Returns the worst result of all readers.
async fn settled(
    load: &RowLoad,
    readers: &[SocketAddr],
    writers: &[RowWriter],
    report: &mut PartReport,
) -> Vec<LossCounts> {
    let deadline = Instant::now() + SETTLE;
    let mut confirmations = 0;
    loop {
        sleep(PAUSE).await;
        let found: ScenarioResult<Vec<_>> =
            block_in_place(|| readers.iter().map(|reader| load.compare(*reader)).collect());
        let is_late = Instant::now() > deadline;
        match found {
            Ok(found) => {
                let worst = found.into_iter().reduce(|some, others| {
                    some.iter().zip(others).map(|(one, other)| one.max(other)).collect()
                });
                let worst = worst.unwrap_or_default();
                let mut ours = writers.iter().zip(&worst).filter(|(writer, _)| writer.is_ours);
                let is_right = ours.all(|(_, lost)| lost.is_zero());
                confirmations = if is_right { confirmations + 1 } else { 0 };
                if is_late || confirmations == CONFIRMATIONS {
                    return worst;
                }
            }
            Err(error) if is_late => {
                report.difference(format!("a row is unreadable: {error}"));
                return vec![LossCounts::default(); readers.len() + 1];
            }
            Err(_) => confirmations = 0,
        }
    }
}
