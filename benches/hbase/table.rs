//! The table of the load: creates and truncates it, and sums up its cells.

use bytes::Bytes;
use hbase_rs::{
    Client, Scan, TableName,
    admin::{FamilyDescriptor, TableDescriptor, TableState},
};

use crate::cells::{BUCKETS, CellTotal, FAMILY};

/// Name of the table.
pub(crate) const NAME: &str = "bench";

pub(crate) fn name() -> TableName {
    NAME.parse().expect("a name")
}

/// Recreates the table of the load, with a region per bucket.
pub(crate) async fn create(client: &Client) {
    let family = FamilyDescriptor::new(FAMILY).bloom_filter("ROW");
    let table = TableDescriptor::new(name()).family(family);
    let splits = (1..BUCKETS).map(|bucket| Bytes::from(vec![bucket as u8]));
    recreate(client, &table, splits).await;
}

/// Recreates a table.
pub(crate) async fn recreate(
    client: &Client,
    table: &TableDescriptor,
    splits: impl IntoIterator<Item = Bytes>,
) {
    let admin = client.admin();
    if admin.tables().await.expect("tables").contains(table.name()) {
        remove(client, table.name()).await;
    }
    admin.create_table(table, splits).await.expect("create table");
}

/// Removes a table.
pub(crate) async fn remove(client: &Client, name: &TableName) {
    disable(client, name).await;
    client.admin().delete_table(name).await.expect("delete table");
}

/// Truncates a table; its regions are kept.
pub(crate) async fn truncate(client: &Client, name: &TableName) {
    disable(client, name).await;
    client.admin().truncate_table(name, true).await.expect("truncate");
    // Fills the region cache before the clock starts.
    client.table(name.clone()).regions().await.expect("regions");
}

async fn disable(client: &Client, name: &TableName) {
    let admin = client.admin();
    let state = admin.table_state(name).await.expect("table state");
    if state == Some(TableState::Enabled) {
        admin.disable_table(name).await.expect("disable");
    }
}

/// Count and sum of all cells.
pub(crate) async fn read(client: &Client) -> CellTotal {
    total(client, Scan::all()).await
}

/// Count and sum of the cells of a scan.
pub(crate) async fn total(client: &Client, scan: Scan) -> CellTotal {
    let mut rows = client.table(name()).scan(scan);
    let mut total = CellTotal::default();
    while let Some(row) = rows.next().await {
        for cell in row.expect("a row").row.cells() {
            let value = cell.value.first_chunk::<4>().expect("a value of four bytes");
            total.cells += 1;
            total.sum += u64::from(u32::from_be_bytes(*value));
        }
    }
    total
}
