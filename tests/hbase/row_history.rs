//! Reads the history of a point's row from HBase, to explain a wrong value.

use cluster::Cluster;
use hbase_rs::{Client, Get, Row, Scan, Selection, Table, TableName};
use tsd_model::{Qualifier, to_hex};

use crate::regions::ScenarioResult;

/// A point of a series with the one tag `host`.
pub(crate) struct PointPlace<'a> {
    /// Name of the table of points; the UID table has the suffix `-uid`. Keys have no salt.
    pub(crate) table: &'a str,
    pub(crate) metric: &'a str,
    pub(crate) host: &'a str,
    pub(crate) at_ms: u64,
}

/// Every cell and delete marker of the row with a point at this instant, including deleted cells, by time. A column of
/// several points shows only that point.
pub(crate) async fn row_history(
    cluster: &Cluster,
    place: &PointPlace<'_>,
) -> ScenarioResult<Vec<String>> {
    let client = cluster.client();
    let uids = client.table(format!("{}-uid", place.table).parse::<TableName>()?);
    let base_secs = u32::try_from(place.at_ms / 1_000 / 3_600 * 3_600)?;
    let offset_ms = u32::try_from(place.at_ms - u64::from(base_secs) * 1_000)?;
    let key = [
        uid(&uids, place.metric, b"metrics").await?,
        base_secs.to_be_bytes().to_vec(),
        uid(&uids, "host", b"tagk").await?,
        uid(&uids, place.host, b"tagv").await?,
    ];
    let key = key.concat();
    let scan = Scan::range(key.clone(), key).inclusive(true, true);
    let mut cells = Vec::new();
    for row in raw_rows(&client, place.table, scan).await? {
        for cell in row.cells() {
            let Some(found) = point_at(cell.qualifier, cell.value, offset_ms) else { continue };
            cells.push(format!("{} {:?} {found}", cell.timestamp, cell.kind));
        }
    }
    cells.sort();
    Ok(cells)
}

/// The first point of each cell and delete marker of all rows of an hour, as [`row_history`], behind their keys. Keys have a
/// salt of one byte and a metric of three.
pub(crate) async fn hour_history(
    cluster: &Cluster,
    table: &str,
    base_secs: u32,
) -> ScenarioResult<Vec<String>> {
    let mut cells = Vec::new();
    for row in raw_rows(&cluster.client(), table, Scan::all()).await? {
        if row.key().get(4..8) != Some(&base_secs.to_be_bytes()[..]) {
            continue;
        }
        for cell in row.cells() {
            let found = point_at(cell.qualifier, cell.value, 0);
            let found = found.unwrap_or_else(|| to_hex(cell.qualifier));
            let key = to_hex(row.key());
            cells.push(format!("{key} {} {:?} {found}", cell.timestamp, cell.kind));
        }
    }
    cells.sort();
    Ok(cells)
}

/// Rows with all their remembered cells.
async fn raw_rows(client: &Client, table: &str, scan: Scan) -> ScenarioResult<Vec<Row>> {
    let selection = Selection::all().max_versions(1_000)?;
    let mut rows = client.table(table.parse::<TableName>()?).scan(scan.select(selection).raw());
    let mut found = Vec::new();
    while let Some(row) = rows.next().await {
        found.push(row?.row);
    }
    Ok(found)
}

async fn uid(uids: &Table, name: &str, kind: &[u8]) -> ScenarioResult<Vec<u8>> {
    let row = uids.get(&Get::try_new(name.to_owned())?).await?;
    Ok(row.value(b"id", kind).ok_or("no UID")?.to_vec())
}

/// The point of a column at an offset in the hour: its qualifier and value, and how many points the column contains. `None`
/// if the column lacks this offset. A delete marker has no value.
fn point_at(qualifier: &[u8], value: &[u8], offset_ms: u32) -> Option<String> {
    let (mut qualifiers, mut values) = (qualifier, value);
    let (mut found, mut points) = (None, 0);
    while let Some((first, rest)) = Qualifier::split_first(qualifiers) {
        let (of_point, left) = values.split_at(first.flags().value_len().min(values.len()));
        if first.offset_ms() == offset_ms {
            found = Some(format!("{}={}", to_hex(first.as_bytes()), to_hex(of_point)));
        }
        points += 1;
        (qualifiers, values) = (rest, left);
    }
    let found = found.filter(|_| qualifier.len().is_multiple_of(2))?;
    let tail = to_hex(if points > 1 { values } else { &[] });
    Some(if points > 1 { format!("{found} of {points} points, tail {tail}") } else { found })
}
