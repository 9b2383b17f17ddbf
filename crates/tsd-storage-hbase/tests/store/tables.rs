//! Creation of missing tables, inspection of existing ones.

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::admin::{FamilyDescriptor, TableDescriptor};
use tsd_storage_hbase::{
    Compression, Splits, TableError, TableLayout, TableOptions, TableState, create_tables,
};

use crate::fake_cluster::client;

fn layouts() -> Vec<TableLayout> {
    vec![
        TableLayout::data("tsdb", Splits::Salt { width: 1, buckets: 20 }),
        TableLayout::uid("tsdb-uid"),
        TableLayout::tree("tsdb-tree"),
        TableLayout::meta("tsdb-meta"),
    ]
}

async fn states(cluster: &FakeCluster, options: &TableOptions) -> Vec<(String, TableState)> {
    let mut states = Vec::new();
    let report = |report: tsd_storage_hbase::TableReport| states.push((report.table, report.state));
    create_tables(&client(cluster), &layouts(), options, report).await.unwrap();
    states
}

#[tokio::test]
async fn tables_are_created_once() {
    let cluster = FakeCluster::start(2).await;
    let states_of = async || states(&cluster, &TableOptions::default()).await;
    let created = states_of().await;
    let regions: Vec<_> = created
        .iter()
        .map(|(name, state)| match state {
            TableState::Created { regions, compression, .. } => {
                (name.as_str(), *regions, compression.as_str())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        regions,
        [
            ("tsdb", 20, "SNAPPY"),
            ("tsdb-uid", 1, "SNAPPY"),
            ("tsdb-tree", 1, "SNAPPY"),
            ("tsdb-meta", 1, "SNAPPY")
        ]
    );
    let client = client(&cluster);
    let data = client.admin().describe_table(&"tsdb".parse().unwrap()).await.unwrap().unwrap();
    let family = &data.families()[0];
    for (name, value) in
        [("VERSIONS", "1"), ("BLOOMFILTER", "ROW"), ("DATA_BLOCK_ENCODING", "DIFF")]
    {
        assert_eq!(family.get(name), Some(value));
    }
    let again = states_of().await;
    assert!(again.iter().all(|(_, state)| *state == TableState::Matches), "{again:?}");
}

#[tokio::test]
async fn differing_table_is_reported_and_not_changed() {
    let cluster = FakeCluster::start(1).await;
    let client = client(&cluster);
    let table = TableDescriptor::new("tsdb".parse().unwrap())
        .family(FamilyDescriptor::new("t").versions(3).ttl_secs(100));
    client.admin().create_table(&table, [vec![1].into(), vec![9].into()]).await.unwrap();
    let table =
        TableDescriptor::new("tsdb-uid".parse().unwrap()).family(FamilyDescriptor::new("name"));
    client.admin().create_table(&table, []).await.unwrap();
    let states = states(&cluster, &TableOptions::default()).await;
    let differs = |texts: &[&str]| TableState::Differs(texts.iter().map(|t| (*t).into()).collect());
    assert_eq!(
        states[0].1,
        differs(&[
            "family t keeps 3 versions, not 1",
            "family t drops cells after 100 s, not never",
            "17 of 19 expected split keys are not region boundaries"
        ])
    );
    assert_eq!(states[1].1, differs(&["it has no family id"]));
}

fn no_codec(times: usize) -> InjectedFault {
    let (class, text) =
        ("DoNotRetryIOException", "Compression algorithm 'x' previously failed test.");
    InjectedFault::once("CreateTable", FaultKind::Exception { class, text }).times(times)
}

#[tokio::test]
async fn best_compression_is_the_first_that_is_supported() {
    let cluster = FakeCluster::start(1).await;
    cluster.inject(no_codec(2));
    let states = states(&cluster, &TableOptions::default()).await;
    for (at, (_, state)) in states.iter().enumerate() {
        let TableState::Created { compression, rejected, .. } = state else { panic!("{state:?}") };
        assert_eq!(compression, "ZSTD");
        assert_eq!(rejected.len(), if at == 0 { 2 } else { 0 }, "later tables reuse the result");
    }
}

#[tokio::test]
async fn named_compression_is_not_replaced() {
    let cluster = FakeCluster::start(1).await;
    cluster.inject(no_codec(1));
    let options =
        TableOptions { compression: Compression::named("lzo"), ..TableOptions::default() };
    let result = create_tables(&client(&cluster), &layouts(), &options, |_| {}).await;
    let Err(TableError::Compression { table, compression, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!((table.as_str(), compression.as_str()), ("tsdb", "LZO"));
    assert_eq!(Compression::named("gzip"), Compression::Named("GZ".into()));
    assert_eq!(Compression::named("auto"), Compression::Best);
}
