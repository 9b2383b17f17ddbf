//! Creates the log table, and checks an existing one.
//!
//! Attributes that make HBase drop, move or copy cells by itself must be off: a dropped cell could be an
//! acknowledged point. The id of the cluster and the number of stripes are attributes of the table, so that
//! they are created together with it. A row of the table has both too, for a start without HBase's master
//! ([`identity`]).

use std::{pin::pin, time::Duration};

use futures_util::future::{Either, select};
use hbase_rs::{
    Client, OperationError, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    errors::ExceptionClass,
};
use tokio::time::{Instant, sleep, timeout_at};
use tsd_cluster::{ClusterId, LogKeys};

use crate::{
    calls::{LogTable, RECORDS, STATE},
    config::ClusterLogConfig,
    error::OpenLogError,
    identity::{self, FoundIdentity, TableIdentity},
    incarnation::random,
};

const CLUSTER: &str = "SALTERN_CLUSTER";
const STRIPES: &str = "SALTERN_STRIPES";
/// Regions of segments for each region server.
const STRIPES_PER_SERVER: usize = 2;
const MAX_STRIPES: usize = 32;
/// How long a start that has the identity of the table waits for the master.
const MASTER_PATIENCE: Duration = Duration::from_millis(500);

/// Required values of attributes, if the table has them.
const TABLE: [(&str, &str); 3] =
    [("SPLIT_ENABLED", "false"), ("MERGE_ENABLED", "false"), ("NORMALIZATION_ENABLED", "false")];
/// Required values of the families' attributes.
const FAMILY: [(&str, &str); 3] =
    [("VERSIONS", "1"), ("KEEP_DELETED_CELLS", "FALSE"), ("REPLICATION_SCOPE", "0")];
/// HBase's values for an unlimited time to live.
const FOR_EVER: [&str; 2] = ["2147483647", "FOREVER"];

/// The log table at a start.
#[derive(Debug)]
pub(crate) struct OpenedTable {
    pub(crate) table: LogTable,
    /// False if the master did not answer, so that the attributes must be checked later.
    pub(crate) is_checked: bool,
}

impl OpenedTable {
    fn new(table: hbase_rs::Table, identity: &TableIdentity, is_checked: bool) -> Self {
        let TableIdentity { keys, birth, .. } = *identity;
        Self { table: LogTable { table, keys, birth }, is_checked }
    }

    fn unchecked(table: hbase_rs::Table, identity: &TableIdentity) -> Self {
        tracing::warn!(
            table = %table.name(),
            checked_ms = identity.checked_ms,
            "HBase's master does not answer; the attributes of the log table are checked when it does"
        );
        Self::new(table, identity, false)
    }
}

/// Opens the table; creates it if it is missing. Asks the master for the attributes and the table for its identity at
/// the same time. If the master does not answer soon, the identity suffices.
pub(crate) async fn open(
    client: &Client,
    config: &ClusterLogConfig,
    deadline: Instant,
) -> Result<OpenedTable, OpenLogError> {
    let name: TableName = config.table.parse()?;
    let table = client.table(name.clone());
    let described = describe(client, &name, deadline);
    let stored = async {
        let found = identity::read(&table, deadline).await;
        if matches!(found, Ok(FoundIdentity::Row(_))) {
            sleep(MASTER_PATIENCE).await;
        }
        found
    };
    let described = match select(pin!(described), pin!(stored)).await {
        Either::Left((Ok(described), _)) => described,
        Either::Left((Err(error), stored)) => match stored.await? {
            FoundIdentity::Row(identity) => {
                return Ok(OpenedTable::unchecked(table.clone(), &identity));
            }
            found => return Err(no_master(&name, found, error)),
        },
        Either::Right((Ok(FoundIdentity::Row(identity)), _)) => {
            return Ok(OpenedTable::unchecked(table.clone(), &identity));
        }
        Either::Right((Ok(found), described)) => {
            described.await.map_err(|error| no_master(&name, found, error))?
        }
        Either::Right((Err(unread), described)) => described.await.map_err(|_| unread)?,
    };
    let described = match described {
        Some(described) => described,
        None => create(client, config, &name, deadline).await?,
    };
    let keys = checked(config, &described)?;
    let identity = identity::record(&table, keys, deadline).await?;
    let identity = identity.ok_or_else(|| other_identity(config))?;
    Ok(OpenedTable::new(table, &identity, true))
}

/// Returns the table if a node has used it as the table of the log. Does not need the master.
pub(crate) async fn find(
    client: &Client,
    config: &ClusterLogConfig,
) -> Result<Option<LogTable>, OpenLogError> {
    let table = client.table(config.table.parse()?);
    let deadline = Instant::now() + config.start_timeout;
    Ok(match identity::read(&table, deadline).await? {
        FoundIdentity::Row(TableIdentity { keys, birth, .. }) => {
            Some(LogTable { table, keys, birth })
        }
        FoundIdentity::NoTable | FoundIdentity::NoRow => None,
    })
}

/// Checks the attributes of a table, and returns the keys of its rows.
pub(crate) fn checked(
    config: &ClusterLogConfig,
    found: &TableDescriptor,
) -> Result<LogKeys, OpenLogError> {
    let differences = differences(found, config);
    let cluster = found.get(CLUSTER).and_then(ClusterId::parse);
    let stripes = found.get(STRIPES).and_then(|number| number.parse().ok());
    let (Some(cluster), Some(stripes), true) = (cluster, stripes, differences.is_empty()) else {
        return Err(OpenLogError::Table { table: config.table.clone(), differences });
    };
    Ok(LogKeys::new(cluster, stripes))
}

/// The error of a table whose attributes are not those of its identity.
pub(crate) fn other_identity(config: &ClusterLogConfig) -> OpenLogError {
    let text = format!("its attributes {CLUSTER} and {STRIPES} are not those of its rows");
    OpenLogError::Table { table: config.table.clone(), differences: vec![text] }
}

/// Returns the attributes of a table. If the master does not answer before the deadline, the result is `Err(None)`.
pub(crate) async fn describe(
    client: &Client,
    name: &TableName,
    deadline: Instant,
) -> Result<Option<TableDescriptor>, Option<OperationError>> {
    let admin = client.admin();
    match timeout_at(deadline, admin.describe_table(name)).await {
        Ok(described) => described.map_err(Some),
        Err(_) => Err(None),
    }
}

/// The error of a start that needs the master.
fn no_master(
    name: &TableName,
    found: FoundIdentity,
    source: Option<OperationError>,
) -> OpenLogError {
    let (state, needed) = match found {
        FoundIdentity::NoTable => ("does not exist", "create it"),
        FoundIdentity::NoRow | FoundIdentity::Row(_) => {
            ("was not used as a log before", "check it")
        }
    };
    OpenLogError::NoMaster { table: name.to_string(), state, needed, source }
}

async fn create(
    client: &Client,
    config: &ClusterLogConfig,
    name: &TableName,
    deadline: Instant,
) -> Result<TableDescriptor, OpenLogError> {
    let status =
        client.admin().cluster_status().await.map_err(failed("choose regions for", name))?;
    let stripes =
        (status.servers.len() * STRIPES_PER_SERVER).clamp(STRIPES_PER_SERVER, MAX_STRIPES);
    let cluster = ClusterId::new(random().to_be_bytes());
    let keys = LogKeys::new(cluster, stripes as u8);
    let descriptor = descriptor(name, keys, config);
    match client.admin().create_table(&descriptor, keys.splits()).await {
        Ok(()) => {
            tracing::warn!(
                table = %name,
                %cluster,
                stripes,
                "created the log table, which did not exist: the log is new, and nothing is replayed"
            );
            Ok(descriptor)
        }
        // Another process was first.
        Err(error) if error.class() == Some(ExceptionClass::TableExists) => {
            let described = describe(client, name, deadline).await;
            let described =
                described.map_err(|source| no_master(name, FoundIdentity::NoRow, source))?;
            described.ok_or_else(|| failed("create", name)(error))
        }
        Err(error) => Err(failed("create", name)(error)),
    }
}

/// Returns a function that makes the error of an operation.
fn failed(what: &'static str, name: &TableName) -> impl FnOnce(OperationError) -> OpenLogError {
    let table = name.to_string();
    move |source| OpenLogError::Admin { what, table, source }
}

fn descriptor(name: &TableName, keys: LogKeys, config: &ClusterLogConfig) -> TableDescriptor {
    let family = |name: &[u8]| {
        let family = FamilyDescriptor::new(name.to_vec()).ttl_secs(i32::MAX as u32);
        FAMILY.iter().fold(family, |family, (name, value)| family.attribute(name, *value))
    };
    let table = TABLE.iter().fold(TableDescriptor::new(name.clone()), |table, (name, value)| {
        table.attribute(name, *value)
    });
    table
        .attribute("DURABILITY", config.durability.attribute())
        .attribute(CLUSTER, keys.cluster().to_string())
        .attribute(STRIPES, keys.stripes().to_string())
        .family(family(RECORDS))
        .family(family(STATE))
}

/// Returns the differences of a table from what the log needs.
fn differences(found: &TableDescriptor, config: &ClusterLogConfig) -> Vec<String> {
    let mut differences = Vec::new();
    if found.get(CLUSTER).and_then(ClusterId::parse).is_none() || found.get(STRIPES).is_none() {
        differences.push(
            "it was not created as a table of the log; name another one, which is created"
                .to_owned(),
        );
    }
    for (name, expected) in TABLE {
        check(&mut differences, "it", name, found.get(name), expected);
    }
    let durability = found.get("DURABILITY");
    check(&mut differences, "it", "DURABILITY", durability, config.durability.attribute());
    for name in [RECORDS, STATE] {
        let text = String::from_utf8_lossy(name);
        let Some(family) = found.families().iter().find(|family| family.name() == name) else {
            differences.push(format!("it has no family {text}"));
            continue;
        };
        let subject = format!("family {text}");
        for (name, expected) in FAMILY {
            check(&mut differences, &subject, name, family.get(name), expected);
        }
        let ttl = family.get("TTL").filter(|ttl| !FOR_EVER.contains(ttl));
        if let Some(ttl) = ttl {
            differences.push(format!("{subject} drops cells after {ttl} s"));
        }
    }
    differences
}

/// Checks one attribute. An absent attribute has HBase's default, which is the expected value.
fn check(
    differences: &mut Vec<String>,
    subject: &str,
    name: &str,
    found: Option<&str>,
    expected: &str,
) {
    if let Some(found) = found.filter(|found| !found.eq_ignore_ascii_case(expected)) {
        differences.push(format!("{subject} has {name} = {found}, not {expected}"));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn created() -> TableDescriptor {
        let config = ClusterLogConfig::new("tsdb-log", "node");
        let keys = LogKeys::new(ClusterId::new([7; 16]), 4);
        descriptor(&"tsdb-log".parse().unwrap(), keys, &config)
    }

    fn check(found: &TableDescriptor, expected: &[&str]) {
        assert_eq!(differences(found, &ClusterLogConfig::new("tsdb-log", "node")), expected);
    }

    #[test]
    fn a_created_table_is_as_it_must_be() {
        check(&created(), &[]);
    }

    #[test]
    fn what_could_drop_cells_is_refused() {
        let other =
            created().attribute("SPLIT_ENABLED", "true").attribute("DURABILITY", "ASYNC_WAL");
        let expected = [
            "it has SPLIT_ENABLED = true, not false",
            "it has DURABILITY = ASYNC_WAL, not SYNC_WAL",
        ];
        check(&other, &expected);
        let family = |name: &str| FamilyDescriptor::new(name.to_owned()).ttl_secs(60).versions(3);
        let other = TableDescriptor::new("tsdb-log".parse().unwrap()).family(family("l"));
        let found = differences(&other, &ClusterLogConfig::new("tsdb-log", "node")).join("\n");
        for text in [
            "was not created as a table of the log",
            "family l has VERSIONS = 3, not 1",
            "family l drops cells after 60 s",
            "it has no family s",
        ] {
            assert!(found.contains(text), "{text} in {found}");
        }
    }
}
