//! Renders the cells of a table as comparable lines.

use cluster::Cluster;
use hbase_rs::{Scan, TableName};
use tsd_model::to_hex;

use crate::{regions::ScenarioResult, table_set::TableSet};

/// Times of creation in the JSON of meta objects, which both write when they first see a name.
const CREATED: &str = "\"created\":";

/// Qualifier of the column to which points are appended.
const APPEND_QUALIFIER: &[u8] = &[5, 0, 0];

/// The cells of a table without their timestamps, sorted: row, family, qualifier and value.
pub(crate) async fn lines(cluster: &Cluster, table: &str) -> ScenarioResult<Vec<String>> {
    let mut rows = cluster.client().table(table.parse::<TableName>()?).scan(Scan::all());
    let mut lines = Vec::new();
    while let Some(row) = rows.next().await {
        let row = row?.row;
        for cell in row.cells() {
            let family = String::from_utf8_lossy(cell.family);
            let (row, qualifier) = (to_hex(row.key()), to_hex(cell.qualifier));
            let is_append = cell.qualifier == APPEND_QUALIFIER;
            let appended = is_append.then(|| in_order(cell.value)).flatten();
            let value = appended.as_deref().unwrap_or(cell.value);
            lines.push(format!("{row} {family} {qualifier} {}", rendered(value)));
        }
    }
    lines.sort();
    Ok(lines)
}

/// The cells of all tables of a set, by the part of the table's name after the prefix.
pub(crate) async fn all_lines(cluster: &Cluster, set: &TableSet) -> ScenarioResult<Vec<String>> {
    let tables = set.tables();
    let prefix = tables.first().map_or(0, String::len);
    let mut all = Vec::new();
    for table in &tables {
        let name = table.get(prefix..).unwrap_or_default();
        let lines = lines(cluster, table).await?;
        all.extend(lines.into_iter().map(|line| format!("{name} {line}")));
    }
    all.sort();
    Ok(all)
}

/// The points of an append column in the order of their bytes. OpenTSDB sends the points of a request at once, so
/// HBase appends them in any order. `None` if the column cannot be split.
fn in_order(mut column: &[u8]) -> Option<Vec<u8>> {
    let mut points = Vec::new();
    while let Some(first) = column.first() {
        let qualifier_length = if first >> 4 == 0xF { 4 } else { 2 };
        // The lowest three bits of a qualifier are the length of the value less one.
        let flags = column.get(qualifier_length - 1)?;
        let length = qualifier_length + usize::from(flags & 7) + 1;
        points.push(column.get(..length)?);
        column = column.get(length..)?;
    }
    points.sort_unstable();
    Some(points.concat())
}

/// JSON as text without times of creation, other values in hexadecimal digits.
fn rendered(value: &[u8]) -> String {
    let Some(text) = std::str::from_utf8(value).ok().filter(|text| text.starts_with('{')) else {
        return to_hex(value);
    };
    let Some((before, after)) = text.split_once(CREATED) else { return text.to_owned() };
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{CREATED}0{after}")
}
