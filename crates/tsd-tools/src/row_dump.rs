//! Prints rows of the data table as they are stored (`tsdb scan`), in OpenTSDB's formats, and optionally deletes them.
//!
//! It prints the rows that a query would read: whole hours, one salt bucket after the other. Memory holds one batch of
//! rows. A row is deleted after its lines were written and flushed. If the store has other writers, only the cells
//! that were read are deleted. As in OpenTSDB, rollups and rows of other tables are left out.

mod text;

use std::{
    collections::{BTreeSet, HashMap},
    io,
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use tsd_engine::{EngineHandle, QueryFailure, RowScans};
use tsd_model::{
    Cell, KindUid, KnownKind, PackedRunError, ReplacedColumn, Row, RowKey, TagkUid, TagvUid, Uid,
    to_hex,
};
use tsd_query::{Query, SubQuery, SubQueryPlan};
use tsd_storage::{Delete, ReadVersion, RowRewrite, Scan, Storage, StorageError, Table, Write};

use self::text::{RowNames, RowTags, RowText, UnnamedUidError};

/// Rows read at once.
const BATCH_ROWS: usize = 200;
/// Most concurrent deletes. Stores with group commit sync several of them at once.
const MAX_CONCURRENT_DELETES: usize = 64;

/// Format of the rows, and whether they are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// Prints lines for the importer, with points only, instead of all columns as they are stored.
    pub import_format: bool,
    /// Deletes each printed row.
    pub delete: bool,
}

/// Counters of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpReport {
    /// Printed rows.
    pub rows: u64,
    /// Lines of points for the importer.
    pub points: u64,
    /// Rows that were deleted.
    pub deleted_rows: u64,
    /// Rows and columns that could not be printed. These rows, and the rows of these columns, are not deleted.
    pub unreadable: u64,
}

/// Receives the lines of a dump.
pub trait DumpSink: Send {
    /// Writes whole lines.
    fn write(&mut self, lines: &str) -> io::Result<()>;

    /// Flushes everything that was written. Called before rows are deleted.
    fn flush(&mut self) -> io::Result<()>;

    /// Reports data that is missing in the lines.
    fn unreadable(&mut self, what: &str);
}

/// Cause why a dump ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The query is invalid, or a name or the store failed.
    #[error(transparent)]
    Query(#[from] QueryFailure),
    /// The lines could not be written. Rows of the last lines were not deleted.
    #[error("cannot write")]
    Write(#[from] io::Error),
}

impl From<StorageError> for DumpError {
    fn from(error: StorageError) -> Self {
        Self::Query(error.into())
    }
}

/// Prints the rows that a query reads, and deletes them if the options ask for it.
///
/// # Errors
///
/// See [`DumpError`]. Rows printed and deleted before the error stay so.
pub async fn dump_rows(
    engine: &EngineHandle,
    query: &Query,
    options: DumpOptions,
    sink: &mut dyn DumpSink,
) -> Result<DumpReport, DumpError> {
    let mut dump = RowDump { engine, query, options, sink, report: DumpReport::default() };
    for sub in &query.sub_queries {
        dump.sub_query(sub).await?;
    }
    dump.sink.flush()?;
    let report = dump.report;
    if report.deleted_rows > 0 {
        engine.drop_caches();
    }
    Ok(report)
}

/// A dump in progress.
struct RowDump<'d> {
    engine: &'d EngineHandle,
    query: &'d Query,
    options: DumpOptions,
    sink: &'d mut dyn DumpSink,
    report: DumpReport,
}

/// A printed row that will be deleted.
struct PrintedRow {
    key: Bytes,
    columns: Vec<ReplacedColumn>,
}

/// Names of the tags of a batch of rows.
#[derive(Default)]
struct BatchNames {
    tagks: HashMap<TagkUid, String>,
    tagvs: HashMap<TagvUid, String>,
}

impl RowDump<'_> {
    async fn sub_query(&mut self, sub: &SubQuery) -> Result<(), DumpError> {
        let range = (self.query.start_ms, self.query.end_ms);
        let Some(found) = self.engine.reads().row_scans(sub, range).await? else { return Ok(()) };
        let RowScans { plan, metric, scans } = found;
        let (storage, table) = (self.engine.storage(), &self.engine.config().tables.data);
        for scan in scans {
            let read = storage.read_version(table);
            let scan = Scan { batch_rows: Some(BATCH_ROWS), ..scan };
            let mut scanner = storage.scan(table, scan);
            while let Some(rows) = scanner.next_rows().await? {
                let printed = self.batch(&plan, &metric, rows).await?;
                if self.options.delete {
                    self.sink.flush()?;
                    self.report.deleted_rows += printed.len() as u64;
                    delete_rows(&**storage, table, printed, read).await?;
                }
            }
        }
        Ok(())
    }

    /// Prints rows. Returns the rows that were printed completely.
    async fn batch(
        &mut self,
        plan: &SubQueryPlan,
        metric: &str,
        rows: Vec<Row>,
    ) -> Result<Vec<PrintedRow>, DumpError> {
        let names = self.names(&rows).await?;
        let mut printed = Vec::new();
        let mut lines = String::new();
        for row in rows {
            let key = row.key.clone();
            let Ok(decoded) = RowKey::decode(&plan.schema, &key) else {
                self.unreadable(&format!("row {}: its key is invalid", to_hex(&key)));
                continue;
            };
            let name_of =
                |uid: &[u8]| Some(names.tagvs.get(&TagvUid::try_new(uid).ok()?)?.as_str());
            let tags = decoded.tag_bytes();
            if !plan.admits(tags) || !plan.accepts(tags, name_of) {
                continue;
            }
            let cells = match row.into_cells() {
                Ok(cells) => cells,
                Err(error) => {
                    self.unreadable_row(&key, &error);
                    continue;
                }
            };
            let tags = names.tags(&decoded);
            let base = decoded.base_time();
            let names = RowNames { metric, tags: &tags };
            let row = RowText { key: &key, base, names, zone: &self.query.zone };
            lines.clear();
            let is_whole = self.print(&row, &cells, &mut lines);
            self.sink.write(&lines)?;
            self.report.rows += 1;
            if is_whole {
                printed.push(PrintedRow { columns: columns(cells), key });
            }
        }
        Ok(printed)
    }

    /// Appends the lines of a row. False if some of it is missing.
    fn print(&mut self, row: &RowText<'_>, cells: &[Cell], lines: &mut String) -> bool {
        if self.options.import_format {
            let Ok(tags) = row.import_tags() else {
                let key = to_hex(row.key);
                self.unreadable(&format!("row {key}: one of its UIDs has no name"));
                return false;
            };
            let mut is_whole = true;
            for cell in cells {
                match row.import_lines(cell, &tags, lines) {
                    Ok(points) => self.report.points += points,
                    Err(error) => {
                        self.unreadable(&column_text(row.key, cell, &error));
                        is_whole = false;
                    }
                }
            }
            return is_whole;
        }
        row.raw_head(lines);
        let mut is_whole = true;
        for cell in cells {
            if let Err(error) = row.raw_column(cell, lines) {
                self.unreadable(&column_text(row.key, cell, &error));
                is_whole = false;
            }
        }
        is_whole
    }

    fn unreadable(&mut self, what: &str) {
        self.report.unreadable += 1;
        self.sink.unreadable(what);
    }

    fn unreadable_row(&mut self, key: &[u8], error: &PackedRunError) {
        self.unreadable(&format!("row {}: {error}", to_hex(key)));
    }

    /// The names of all tags of some rows. UIDs without a name are left out.
    async fn names(&self, rows: &[Row]) -> Result<BatchNames, DumpError> {
        let schema = &self.engine.config().schema;
        let (mut tagks, mut tagvs) = (BTreeSet::new(), BTreeSet::new());
        for row in rows {
            let Ok(key) = RowKey::decode(schema, &row.key) else { continue };
            for (tagk, tagv) in key.tags() {
                tagks.insert(tagk);
                tagvs.insert(tagv);
            }
        }
        Ok(BatchNames { tagks: self.named(tagks).await?, tagvs: self.named(tagvs).await? })
    }

    async fn named<K: KnownKind>(
        &self,
        uids: BTreeSet<KindUid<K>>,
    ) -> Result<HashMap<KindUid<K>, String>, QueryFailure> {
        let uids: Vec<Uid> = uids.into_iter().map(KindUid::uid).collect();
        let names = self.engine.uids().names_of(K::KIND, &uids).await?;
        let named = uids.into_iter().map(KindUid::new).zip(names);
        Ok(named.filter_map(|(uid, name)| Some((uid, name?))).collect())
    }
}

fn name<K: KnownKind>(
    names: &HashMap<KindUid<K>, String>,
    uid: KindUid<K>,
) -> Result<String, UnnamedUidError> {
    let unnamed = || UnnamedUidError { kind: K::KIND, uid: uid.as_bytes().to_vec() };
    names.get(&uid).cloned().ok_or_else(unnamed)
}

impl BatchNames {
    /// The tags of a row in the order of Java's map. Fails if a UID has no name.
    fn tags(&self, key: &RowKey<'_>) -> RowTags {
        let mut tags: Vec<(String, String)> = key
            .tags()
            .map(|(tagk, tagv)| Ok((name(&self.tagks, tagk)?, name(&self.tagvs, tagv)?)))
            .collect::<Result<_, UnnamedUidError>>()?;
        tsd_model::sort_as_sized_hash_map(&mut tags, |(tagk, _)| tagk);
        Ok(tags)
    }
}

fn columns(cells: Vec<Cell>) -> Vec<ReplacedColumn> {
    let column = |Cell { family, qualifier, timestamp_ms, .. }| ReplacedColumn {
        family,
        qualifier,
        timestamp_ms,
    };
    cells.into_iter().map(column).collect()
}

fn column_text(key: &[u8], cell: &Cell, error: &tsd_model::ColumnError) -> String {
    format!("row {} column {}: {error}", to_hex(key), to_hex(&cell.qualifier))
}

/// Deletes printed rows; if others may write to them, only the cells that were read.
async fn delete_rows(
    storage: &dyn Storage,
    table: &Table,
    rows: Vec<PrintedRow>,
    read: ReadVersion,
) -> Result<(), StorageError> {
    let deletes = rows.into_iter().map(|PrintedRow { key, columns }| {
        if read.0.is_some() {
            // This process is the only writer.
            return Write::Delete(Delete::Row(key));
        }
        Write::Rewrite(RowRewrite {
            row: key,
            put: None,
            superseded_ms: None,
            delete: columns,
            read,
            whole_row: false,
        })
    });
    let written = deletes.map(|delete| storage.write(table, delete, None));
    let written = stream::iter(written).buffer_unordered(MAX_CONCURRENT_DELETES);
    written.try_for_each(|_| future::ready(Ok(()))).await
}

#[cfg(test)]
mod tests;
