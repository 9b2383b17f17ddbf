//! Tests that both daemons respond equally to random requests on one set of tables, whichever
//! daemon wrote the points, and in whatever form.

use std::collections::BTreeMap;

use cluster::Node;
use tokio::task::block_in_place;
use tsd_testkit::{Daemon, metric, wait_for};

use crate::differential::{
    compare::compare,
    data::Data,
    known::KnownDifferences,
    random::Random,
    requests,
    servers::{Ours, Servers},
};
use crate::interop::{report::PartReport, run::Context};
use crate::{
    regions::ScenarioResult,
    table_set::{NO_COMPACTION, TableSet},
    tsd::Settings,
};

/// Requests of a writer.
const REQUESTS: u64 = 100;

/// Who writes: a name, and the settings of our daemon; `None` for OpenTSDB.
const WRITERS: [(&str, Option<&Settings<'static>>); 4] = [
    ("OpenTSDB", None),
    ("ours", Some(&[])),
    ("ours, appends", Some(&[("tsd.storage.enable_appends", "true")])),
    ("ours, ack = log", Some(&[("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "0.5")])),
];

/// Stores points through each writer and sends requests to both.
pub(crate) async fn run(context: &mut Context<'_>) -> ScenarioResult<PartReport> {
    let mut report = PartReport::default();
    let set = TableSet::with_meta(&format!("answers-{}", context.round), &[]);
    set.create(context.cluster)?;
    // OpenTSDB may lose points when it reads a row twice at once.
    let theirs = set.restart_theirs(context.cluster, Node::OpenTsdb, &NO_COMPACTION).await?;
    let reader = context.start_ours(&set.with(&[]));
    let servers = Servers::running(theirs, vec![Ours { name: "hbase", address: reader.address() }]);
    let known = KnownDifferences::load();
    let mut known_counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, (name, settings)) in WRITERS.into_iter().enumerate() {
        let seed = context.seed() + 1_000 * (at as u64 + 1);
        let mut random = Random::new(seed);
        let mut data = Data::new(seed, &mut random);
        let writer = settings.map(|settings| context.start_ours(&set.with(settings)));
        let address = writer.as_ref().map_or(theirs, Daemon::address);
        block_in_place(|| data.store(&Servers::running(address, Vec::new()), false))?;
        if let Some(writer) = &writer {
            await_flush(writer)?;
        }
        for number in 0..REQUESTS {
            let (kind, request) = requests::next(&data, number, &mut random);
            if !request.is_read {
                continue;
            }
            report.answers += 1;
            let found = block_in_place(|| compare(&servers, &request));
            let Some(difference) = found else { continue };
            match known.find(&difference) {
                Some(known) => *known_counts.entry(known).or_default() += 1,
                None => report.difference(format!(
                    "seed {seed}, written by {name}, request {number} ({kind}): {difference}{}",
                    data.points_of(&difference.request)
                )),
            }
        }
    }
    for (name, count) in known_counts {
        report.note(format!("known: {count} × {name}"));
    }
    Ok(report)
}

/// Waits until a daemon holds no rows.
fn await_flush(daemon: &Daemon) -> ScenarioResult<()> {
    let held = || metric(daemon.address(), "tsd_wal_memtable_rows").unwrap_or_default();
    let flushed = block_in_place(|| wait_for(|| (held() == 0.0).then_some(())));
    Ok(flushed.ok_or("the log is not flushed")?)
}
