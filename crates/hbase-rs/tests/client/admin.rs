//! Administrative operations.

use futures_util::TryStreamExt;
use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    BufferConfig, Client, Scan, TableName,
    admin::{Admin, FamilyDescriptor, NamespaceDescriptor, TableDescriptor, TableState},
    buffer::MutationBatch,
    errors::{ExceptionClass, Failure},
};

use super::{config, fill, get, put};

async fn start() -> (FakeCluster, Client, Admin) {
    let cluster = FakeCluster::start(2).await;
    let client = Client::new(config(), cluster.discovery());
    let admin = client.admin();
    (cluster, client, admin)
}

fn name() -> TableName {
    "t".parse().unwrap()
}

fn descriptor() -> TableDescriptor {
    TableDescriptor::new(name()).family(FamilyDescriptor::new("f").versions(1).compression("NONE"))
}

#[tokio::test]
async fn tables_are_created_altered_and_deleted() {
    let (_cluster, client, admin) = start().await;
    assert_eq!(admin.table_state(&name()).await.unwrap(), None);
    // Duplicate and empty keys are ignored.
    let splits = ["p", "g", "p", ""].map(Into::into);
    admin.create_table(&descriptor(), splits).await.unwrap();
    assert_eq!(admin.tables().await.unwrap(), [name()]);
    assert_eq!(admin.describe_table(&name()).await.unwrap(), Some(descriptor()));
    assert_eq!(admin.table_state(&name()).await.unwrap(), Some(TableState::Enabled));
    let table = client.table(name());
    assert_eq!(table.regions().await.unwrap().len(), 3);
    fill(&table, &["a", "h", "z"]).await;
    admin.flush_table(&name()).await.unwrap();
    admin.compact_table(&name(), true).await.unwrap();
    admin.disable_table(&name()).await.unwrap();
    assert_eq!(admin.table_state(&name()).await.unwrap(), Some(TableState::Disabled));
    admin.truncate_table(&name(), true).await.unwrap();
    assert!(table.get(&get("a")).await.unwrap().is_empty());
    admin.disable_table(&name()).await.unwrap();
    admin.enable_table(&name()).await.unwrap();
    table.mutate(put("a", "1")).await.unwrap();
    admin.disable_table(&name()).await.unwrap();
    admin.delete_table(&name()).await.unwrap();
    assert_eq!(admin.describe_table(&name()).await.unwrap(), None);
    let error = table.get(&get("a")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::NoTable(_)), "{error:?}");
}

#[tokio::test]
async fn namespaces_are_created_used_and_deleted() {
    let (cluster, client, admin) = start().await;
    let metrics = NamespaceDescriptor::new("metrics").property("owner", "ops");
    cluster.inject(InjectedFault::once("CreateNamespace", FaultKind::CloseAfter(0)));
    admin.create_namespace(&metrics).await.unwrap();
    let again = admin.create_namespace(&metrics).await.unwrap_err();
    assert_eq!(again.class(), Some(ExceptionClass::NamespaceExists));
    let names: Vec<_> =
        admin.namespaces().await.unwrap().iter().map(|one| one.name().to_owned()).collect();
    assert_eq!(names, ["default", "hbase", "metrics"]);
    assert_eq!(admin.describe_namespace("metrics").await.unwrap(), Some(metrics.clone()));
    assert_eq!(admin.describe_namespace("none").await.unwrap(), None);
    assert_eq!(metrics.get("owner"), Some("ops"));

    // A table of the same name in another namespace is a different table.
    let name: TableName = "metrics:t".parse().unwrap();
    let table = TableDescriptor::new(name.clone()).family(FamilyDescriptor::new("f"));
    admin.create_table(&table, ["m".into()]).await.unwrap();
    admin.create_table(&descriptor(), []).await.unwrap();
    assert_eq!(admin.tables_in("metrics").await.unwrap(), std::slice::from_ref(&name));
    assert_eq!(admin.tables_in("default").await.unwrap(), [self::name()]);
    assert_eq!(admin.describe_table(&name).await.unwrap(), Some(table));
    let (ours, other) = (client.table(name.clone()), client.table(self::name()));
    fill(&ours, &["a", "z"]).await;
    let mut batch = MutationBatch::default();
    batch.put(b"b", b"f", b"q", 1, b"b").unwrap();
    ours.buffered(BufferConfig::default()).write(batch).await.unwrap();
    assert_eq!(ours.regions().await.unwrap().len(), 2);
    assert_eq!(ours.get_many(vec![get("a"), get("b"), get("z")]).await.unwrap().len(), 3);
    let rows: Vec<_> = ours.scan(Scan::all()).try_collect().await.unwrap();
    assert_eq!(rows.len(), 3);
    assert!(other.get(&get("a")).await.unwrap().is_empty());
    let first = ours.locate("a".into()).await.unwrap();
    admin.split_region(&first.region, Some("b".into())).await.unwrap();
    assert_eq!(ours.get(&get("b")).await.unwrap().len(), 1);
    admin.flush_table(&name).await.unwrap();

    let full = admin.delete_namespace("metrics").await.unwrap_err();
    assert_eq!(full.class(), Some(ExceptionClass::Permanent));
    admin.disable_table(&name).await.unwrap();
    admin.delete_table(&name).await.unwrap();
    admin.delete_namespace("metrics").await.unwrap();
    let missing = admin.delete_namespace("metrics").await.unwrap_err();
    assert_eq!(missing.class(), Some(ExceptionClass::NamespaceNotFound));
    let nowhere = TableDescriptor::new(name).family(FamilyDescriptor::new("f"));
    let nowhere = admin.create_table(&nowhere, []).await.unwrap_err();
    assert_eq!(nowhere.class(), Some(ExceptionClass::NamespaceNotFound));
}

#[tokio::test]
async fn regions_are_split_merged_and_moved() {
    let (cluster, client, admin) = start().await;
    admin.create_table(&descriptor(), ["m".into()]).await.unwrap();
    let table = client.table(name());
    fill(&table, &["a", "h", "z"]).await;
    let first = table.locate("a".into()).await.unwrap();
    admin.split_region(&first.region, Some("g".into())).await.unwrap();
    assert_eq!(table.regions().await.unwrap().len(), 3);
    let regions = table.regions().await.unwrap();
    admin.merge_regions(&[&regions[0].region, &regions[1].region]).await.unwrap();
    assert_eq!(table.regions().await.unwrap().len(), 2);
    let moved = table.regions().await.unwrap().remove(0);
    admin.move_region(&moved.region, Some(&cluster.server(1))).await.unwrap();
    for row in ["a", "h", "z"] {
        assert_eq!(table.get(&get(row)).await.unwrap().len(), 1);
    }
    assert_eq!(table.locate("a".into()).await.unwrap().server, cluster.server(1));
}

#[tokio::test]
async fn failed_procedure_returns_its_cause() {
    let (_cluster, client, admin) = start().await;
    admin.create_table(&descriptor(), ["g".into(), "p".into()]).await.unwrap();
    let regions = client.table(name()).regions().await.unwrap();
    let error = admin.merge_regions(&[&regions[0].region, &regions[2].region]).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Procedure(_)), "{error:?}");
    assert_eq!(error.class(), Some(ExceptionClass::Permanent));
}

#[tokio::test]
async fn permanent_exceptions_of_the_master_are_returned() {
    let (_cluster, _client, admin) = start().await;
    admin.create_table(&descriptor(), []).await.unwrap();
    let again = admin.create_table(&descriptor(), []).await.unwrap_err();
    assert_eq!(again.class(), Some(ExceptionClass::TableExists));
    let enabled = admin.delete_table(&name()).await.unwrap_err();
    assert_eq!(enabled.class(), Some(ExceptionClass::TableNotDisabled));
    let none =
        admin.create_table(&TableDescriptor::new("u".parse().unwrap()), []).await.unwrap_err();
    assert_eq!(none.class(), Some(ExceptionClass::FailedSanityCheck));
    let missing = admin.flush_table(&"nope".parse().unwrap()).await.unwrap_err();
    assert_eq!(missing.class(), Some(ExceptionClass::TableNotFound));
}

#[tokio::test]
async fn retry_after_a_lost_response_joins_the_procedure() {
    let (cluster, client, admin) = start().await;
    for fault in [FaultKind::CloseAfter(0), FaultKind::CloseAfter(6)] {
        cluster.inject(InjectedFault::once("CreateTable", fault));
    }
    admin.create_table(&descriptor(), ["g".into()]).await.unwrap();
    assert_eq!(cluster.calls("CreateTable"), 3);
    assert_eq!(client.table(name()).regions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn new_active_master_is_found() {
    let (cluster, _client, admin) = start().await;
    admin.create_table(&descriptor(), []).await.unwrap();
    // The old one is a standby now.
    cluster.set_master(1);
    assert_eq!(admin.cluster_status().await.unwrap().master, Some(cluster.server(1)));
    cluster.set_master(0);
    cluster.kill(1).await;
    assert_eq!(admin.cluster_status().await.unwrap().master, Some(cluster.server(0)));
    for class in
        ["PleaseHoldException", "exceptions.MasterStoppedException", "MasterNotRunningException"]
    {
        cluster.inject(InjectedFault::once(
            "GetClusterStatus",
            FaultKind::Exception { class, text: "later" },
        ));
        let status = admin.cluster_status().await.unwrap();
        assert_eq!((status.version.as_str(), status.servers.len()), ("2.6.4-fake", 2));
    }
}

#[tokio::test]
async fn older_master_flushes_by_a_procedure() {
    let (cluster, _client, admin) = start().await;
    admin.create_table(&descriptor(), []).await.unwrap();
    cluster.remove_flush_table_rpc();
    admin.flush_table(&name()).await.unwrap();
    assert_eq!(cluster.calls("IsProcedureDone"), 1);
    assert!(admin.set_balancer(false).await.unwrap());
}
