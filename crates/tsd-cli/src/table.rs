//! `tsdb table`: creates the tables in HBase and shows existing ones.

use std::{
    collections::BTreeSet,
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use hbase_rs::{Client, TableName, admin::NamespaceDescriptor, stats::RetryReason};
use tokio_util::task::AbortOnDropHandle;
use tsd_storage_hbase::{
    Compression, Splits, TableLayout, TableOptions, TableState, create_tables, inspect_table,
};

use crate::{
    args::TableCreateArgs,
    config::{EngineKind, Settings},
    store, tell,
};

/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Default number of regions with random metric UIDs.
const RANDOM_METRIC_REGIONS: u32 = 16;

/// Creates the missing tables.
pub(crate) async fn create(
    settings: &Settings,
    args: &TableCreateArgs,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let client = connect(settings, out).await?;
    let _progress = report_progress(&client);
    let mut layouts = layouts(settings);
    if let Some(ttl) = args.ttl {
        for layout in &mut layouts {
            if holds_points(settings, &layout.name) {
                *layout = layout.clone().ttl_secs(ttl);
            }
        }
    }
    let missing = missing_namespaces(&client, &layouts).await.with_context(|| place(settings))?;
    if args.dry_run {
        for namespace in &missing {
            writeln!(out, "namespace {namespace}: does not exist and would be created")?;
        }
        for layout in &layouts {
            let state = inspect_table(&client, layout).await.with_context(|| place(settings))?;
            let text = match state {
                None => {
                    format!("would be created with {}", regions(layout.splits.keys().len() + 1))
                }
                Some(state) => describe(&state),
            };
            writeln!(out, "{}: {text}", layout.name)?;
        }
        return Ok(());
    }
    for namespace in missing {
        let descriptor = NamespaceDescriptor::new(&namespace);
        client.admin().create_namespace(&descriptor).await.with_context(|| {
            format!(
                "namespace {namespace} does not exist and cannot be created; an administrator of HBase \
                 creates it by create_namespace '{namespace}' in HBase's shell"
            )
        })?;
        writeln!(out, "namespace {namespace}: created")?;
    }
    let options = TableOptions {
        compression: Compression::named(&args.compression),
        encoding: args.encoding.to_ascii_uppercase(),
        bloom_filter: args.bloom.to_ascii_uppercase(),
    };
    let mut written = Ok(());
    create_tables(&client, &layouts, &options, |report| {
        if written.is_ok() {
            written = writeln!(out, "{}: {}", report.table, describe(&report.state));
        }
    })
    .await
    .with_context(|| place(settings))?;
    Ok(written?)
}

/// The namespaces of the tables that HBase does not have.
async fn missing_namespaces(
    client: &Client,
    layouts: &[TableLayout],
) -> anyhow::Result<BTreeSet<String>> {
    let namespaces = layouts.iter().filter_map(|layout| layout.name.split_once(':'));
    let mut missing = BTreeSet::new();
    for namespace in namespaces.map(|(namespace, _)| namespace).collect::<BTreeSet<_>>() {
        if client.admin().describe_namespace(namespace).await?.is_none() {
            missing.insert(namespace.to_owned());
        }
    }
    Ok(missing)
}

/// Prints the state of the tables. Fails if one is missing or differs from the settings.
pub(crate) async fn status(settings: &Settings, out: &mut impl Write) -> anyhow::Result<()> {
    let client = connect(settings, out).await?;
    let _progress = report_progress(&client);
    let mut wrong = 0;
    for layout in layouts(settings) {
        let state = inspect_table(&client, &layout).await.with_context(|| place(settings))?;
        let Some(state) = state else {
            wrong += 1;
            writeln!(out, "{}: missing", layout.name)?;
            continue;
        };
        wrong += usize::from(matches!(state, TableState::Differs(_)));
        let name: TableName = layout.name.parse()?;
        let of_table = client.table(name).regions().await.with_context(|| place(settings))?;
        writeln!(out, "{}: {}; {}", layout.name, regions(of_table.len()), describe(&state))?;
    }
    ensure!(wrong == 0, "{wrong} of the tables are missing or differ from the settings");
    Ok(())
}

/// Reports on standard error that an operation on HBase takes long. Stops when dropped.
fn report_progress(client: &Client) -> AbortOnDropHandle<()> {
    let client = client.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let started = Instant::now();
        loop {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            tell!("{}", progress(started.elapsed(), &client.stats().retries));
        }
    }))
}

/// The time of an operation so far, and the most frequent reason for its retries.
fn progress(elapsed: Duration, retries: &[(RetryReason, u64)]) -> String {
    let retries = match retries.first() {
        Some((reason, count)) => format!("{count} retries, reason: {reason:?}"),
        None => "no failed attempt".to_owned(),
    };
    format!("waiting for HBase for {} s ({retries})", elapsed.as_secs())
}

/// Returns a client of a cluster whose servers are found and whose master responds.
async fn connect(settings: &Settings, out: &mut impl Write) -> anyhow::Result<Client> {
    ensure!(
        settings.storage.engine == EngineKind::HBase,
        "the store is not HBase; name HBase's ZooKeeper with --zkquorum or tsd.storage.hbase.zk_quorum"
    );
    let hbase = &settings.storage.hbase;
    writeln!(out, "HBase at {}", hbase.cluster.discovery)?;
    // Fails early, because a user waits.
    let mut hbase = hbase.clone();
    hbase.cluster.operation_timeout = hbase.cluster.operation_timeout.min(hbase.start_timeout);
    let client = hbase.client()?;
    store::find_cluster(&client, settings, hbase.start_timeout).await?;
    hbase.cluster.procedure_timeout = hbase.start_timeout;
    let first = hbase.client()?;
    let _progress = report_progress(&first);
    first.admin().cluster_status().await.with_context(|| {
        format!("{}; check tsd.storage.hbase.zk_quorum, zk_basedir and hosts", place(settings))
    })?;
    Ok(client)
}

fn place(settings: &Settings) -> String {
    format!("HBase at {} failed", settings.storage.hbase.cluster.discovery)
}

/// The configured tables.
fn layouts(settings: &Settings) -> Vec<TableLayout> {
    let (names, hbase) = (&settings.engine.tables, &settings.storage.hbase);
    store::all_tables(settings)
        .into_iter()
        .map(|table| {
            let name = table.as_str();
            if table == names.uid {
                TableLayout::uid(name)
            } else if table == names.meta {
                TableLayout::meta(name)
            } else if table == names.tree {
                TableLayout::tree(name)
            } else {
                TableLayout::data(name, splits(settings))
            }
        })
        .chain(hbase.registers_series().then(|| TableLayout::series(hbase.series_table.as_str())))
        .collect()
}

fn holds_points(settings: &Settings, name: &str) -> bool {
    let names = &settings.engine.tables;
    let series = &settings.storage.hbase.series_table;
    ![&names.uid, &names.meta, &names.tree, series].iter().any(|table| table.as_str() == name)
}

fn splits(settings: &Settings) -> Splits {
    let schema = settings.storage.schema;
    if schema.salt_width() > 0 {
        Splits::Salt { width: schema.salt_width(), buckets: schema.salt_buckets() }
    } else if settings.engine.uids.random_metrics {
        Splits::Metrics { width: schema.metric_width(), regions: RANDOM_METRIC_REGIONS }
    } else {
        Splits::None
    }
}

fn regions(count: usize) -> String {
    if count == 1 { "1 region".to_owned() } else { format!("{count} regions") }
}

fn describe(state: &TableState) -> String {
    match state {
        TableState::Created { regions: count, compression, rejected } => {
            let made = format!("created with {}, compression {compression}", regions(*count));
            let rejected = rejected
                .iter()
                .map(|(other, why)| format!("\n  the cluster cannot do {other}: {why}"));
            std::iter::once(made).chain(rejected).collect()
        }
        TableState::Matches => "exists and matches".to_owned(),
        TableState::Differs(differences) => {
            format!("exists and was not changed, though {}", differences.join("; "))
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::Config;

    fn layouts_of(text: &str) -> Vec<(String, usize)> {
        let mut config = Config::default();
        let text = format!("tsd.storage.hbase.zk_quorum = zk\n{text}");
        config.add_file(std::path::Path::new("f"), text.as_bytes()).unwrap();
        let settings = Settings::from_config(&config).unwrap();
        layouts(&settings).into_iter().map(|t| (t.name, t.splits.keys().len() + 1)).collect()
    }

    #[test]
    fn tables_are_those_of_the_settings() {
        let plain = |data| {
            vec![
                ("tsdb".to_owned(), data),
                ("tsdb-uid".to_owned(), 1),
                ("tsdb-meta".to_owned(), 1),
                ("tsdb-tree".to_owned(), 1),
            ]
        };
        assert_eq!(layouts_of(""), plain(1));
        assert_eq!(layouts_of("tsd.storage.salt.width = 1"), plain(20));
        assert_eq!(
            layouts_of("tsd.storage.salt.width = 1\ntsd.storage.salt.buckets = 7"),
            plain(7)
        );
        assert_eq!(layouts_of("tsd.core.uid.random_metrics = true"), plain(16));
        let named = layouts_of("tsd.storage.hbase.data_table = points");
        assert_eq!(named.first().unwrap().0, "points");
        let registering = layouts_of("tsd.storage.hbase.series_index = register");
        assert_eq!(registering.last().unwrap(), &("tsdb-series".to_owned(), 1));
        assert_eq!(layouts_of("tsd.storage.hbase.series_index = estimate"), plain(1));
    }

    #[tokio::test]
    async fn without_hbase_there_are_no_tables_to_make() {
        let settings = Settings::from_config(&Config::default()).unwrap();
        let error = connect(&settings, &mut Vec::new()).await.unwrap_err();
        assert!(error.to_string().contains("--zkquorum"), "{error}");
    }

    #[tokio::test]
    async fn closed_port_is_an_error_that_names_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let quorum = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut config = Config::default();
        config.set_flag("test", "tsd.storage.hbase.zk_quorum", &quorum);
        config.set_flag("test", "tsd.storage.hbase.start_timeout", "0");
        let settings = Settings::from_config(&config).unwrap();
        let error = connect(&settings, &mut Vec::new()).await.unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains(&quorum) && text.contains("refused"), "{text}");
    }

    #[test]
    fn progress_has_the_reason_of_the_retries() {
        let retries = [(RetryReason::Connect, 7)];
        let text = progress(Duration::from_secs(5), &retries);
        assert_eq!(text, "waiting for HBase for 5 s (7 retries, reason: Connect)");
    }
}
