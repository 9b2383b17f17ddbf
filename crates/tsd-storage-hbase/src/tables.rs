//! Layouts of the tables, and their creation and inspection in HBase.

use bytes::Bytes;
use hbase_rs::{
    Client, OperationError, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    errors::{CallError, ExceptionClass, Failure, TableNameError},
};
use tsd_model::Family;

/// The expected layout of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLayout {
    /// Name of the table.
    pub name: String,
    /// Column families.
    pub families: Vec<FamilyLayout>,
    /// Initial region boundaries.
    pub splits: Splits,
}

/// A column family of a [`TableLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyLayout {
    /// The family.
    pub family: Family,
    /// Maximum number of versions per cell; `None` is HBase's default.
    pub versions: Option<u32>,
    /// Time to live of cells, in seconds; `None` keeps them forever.
    pub ttl_secs: Option<u32>,
}

/// Initial region boundaries of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Splits {
    /// One region, which HBase splits as it grows. Suits small tables, and data without salt:
    /// metric UIDs are assigned in sequence, so splits in advance would not be balanced.
    #[default]
    None,
    /// One region per salt bucket.
    Salt {
        /// Width of the salt, in bytes.
        width: usize,
        /// Number of buckets.
        buckets: u32,
    },
    /// Equal ranges of metric UIDs, for metrics with random UIDs.
    Metrics {
        /// Width of a metric UID, in bytes.
        width: usize,
        /// Number of regions.
        regions: u32,
    },
}

/// Storage options of new tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Compression of HFiles.
    pub compression: Compression,
    /// Data block encoding: `NONE`, `PREFIX`, `DIFF`, `FAST_DIFF`, `ROW_INDEX_V1`.
    pub encoding: String,
    /// Bloom filter: `NONE`, `ROW`, `ROWCOL`.
    pub bloom_filter: String,
}

/// Compression of HFiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compression {
    /// The first of Snappy, LZ4, Zstandard and gzip that the cluster supports; otherwise no
    /// compression.
    Best,
    /// The algorithm with this name in HBase; an error if the cluster does not support it.
    Named(String),
}

/// Result of [`create_tables`] for one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// Name of the table.
    pub table: String,
    /// State of the table.
    pub state: TableState,
}

/// State of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableState {
    /// The table was created.
    Created {
        /// Number of regions.
        regions: usize,
        /// Compression of its HFiles.
        compression: String,
        /// Compressions that the cluster does not support, with its error messages.
        rejected: Vec<(String, String)>,
    },
    /// The table exists and has the expected layout.
    Matches,
    /// The table exists with another layout and was not changed; the differences.
    Differs(Vec<String>),
}

/// Why a table could not be created or inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The name is not a valid table name.
    #[error("bad table name")]
    Name(#[from] TableNameError),
    /// The cluster does not support the compression.
    #[error(
        "the cluster cannot compress {table} with {compression} ({message}); choose another one of \
         NONE, SNAPPY, LZ4, ZSTD, GZ"
    )]
    Compression {
        /// Table to create.
        table: String,
        /// Compression that is not supported.
        compression: String,
        /// Error message of the master.
        message: String,
    },
    /// An operation failed.
    #[error("cannot {what} table {table}")]
    Operation {
        /// The operation, as a verb.
        what: &'static str,
        /// The table.
        table: String,
        /// The error of the client.
        source: OperationError,
    },
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Best,
            encoding: "DIFF".to_owned(),
            bloom_filter: "ROW".to_owned(),
        }
    }
}

impl Compression {
    /// Candidates of [`Self::Best`], the cheapest first.
    const BEST: [&str; 5] = ["SNAPPY", "LZ4", "ZSTD", "GZ", "NONE"];

    /// Returns the compression with this name; `GZIP` is HBase's `GZ`, and `auto` is
    /// [`Self::Best`].
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name.to_ascii_uppercase().as_str() {
            "AUTO" => Self::Best,
            "GZIP" => Self::Named("GZ".to_owned()),
            other => Self::Named(other.to_owned()),
        }
    }

    fn candidates(&self) -> Vec<&str> {
        match self {
            Self::Best => Self::BEST.to_vec(),
            Self::Named(name) => vec![name],
        }
    }
}

impl Splits {
    /// Returns the start keys of the regions, without the first one, which is empty.
    #[must_use]
    pub fn keys(&self) -> Vec<Bytes> {
        match *self {
            Self::None | Self::Salt { width: 0, .. } | Self::Metrics { width: 0, .. } => Vec::new(),
            Self::Salt { width, buckets } => {
                // Buckets beyond the number of salt values share regions.
                let values = 1_u64 << (8 * width.min(4));
                (1..u64::from(buckets).min(values)).map(|bucket| low_bytes(bucket, width)).collect()
            }
            Self::Metrics { width, regions } => {
                let bits = 8 * width.min(7) as u32;
                (1..u128::from(regions))
                    .map(|at| (at << bits) / u128::from(regions))
                    .map(|start| low_bytes(start as u64, width.min(7)))
                    .filter(|key| key.iter().any(|byte| *byte != 0))
                    .collect()
            }
        }
    }
}

/// Returns the low `width` bytes of a number, in big-endian order.
fn low_bytes(number: u64, width: usize) -> Bytes {
    let bytes = number.to_be_bytes();
    let zeros = vec![0; width.saturating_sub(bytes.len())];
    let low = bytes.get(bytes.len().saturating_sub(width)..).unwrap_or_default();
    [&zeros, low].concat().into()
}

impl TableLayout {
    /// The table of points or rollups: one version, because overwritten points are not needed.
    #[must_use]
    pub fn data(name: &str, splits: Splits) -> Self {
        Self { splits, ..Self::of(name, &[(Family::T, Some(1))]) }
    }

    /// The table of UIDs.
    #[must_use]
    pub fn uid(name: &str) -> Self {
        Self::of(name, &[(Family::Id, None), (Family::Name, None)])
    }

    /// The table of trees.
    #[must_use]
    pub fn tree(name: &str) -> Self {
        Self::of(name, &[(Family::T, Some(1))])
    }

    /// The meta table (series and their meta data).
    #[must_use]
    pub fn meta(name: &str) -> Self {
        Self::of(name, &[(Family::Name, None)])
    }

    /// The table in which series are registered.
    #[must_use]
    pub fn series(name: &str) -> Self {
        Self::of(name, &[(Family::Name, Some(1))])
    }

    /// Sets the time to live of all families, in seconds.
    #[must_use]
    pub fn ttl_secs(mut self, ttl: u32) -> Self {
        for family in &mut self.families {
            family.ttl_secs = Some(ttl);
        }
        self
    }

    fn of(name: &str, families: &[(Family, Option<u32>)]) -> Self {
        let layout = |&(family, versions): &_| FamilyLayout { family, versions, ttl_secs: None };
        let families = families.iter().map(layout).collect();
        Self { name: name.to_owned(), families, splits: Splits::None }
    }

    fn descriptor(
        &self,
        name: &TableName,
        options: &TableOptions,
        compression: &str,
    ) -> TableDescriptor {
        self.families.iter().fold(TableDescriptor::new(name.clone()), |table, layout| {
            let mut family = FamilyDescriptor::new(layout.family.as_str())
                .compression(compression)
                .data_block_encoding(&options.encoding)
                .bloom_filter(&options.bloom_filter);
            if let Some(versions) = layout.versions {
                family = family.versions(versions);
            }
            if let Some(ttl) = layout.ttl_secs {
                family = family.ttl_secs(ttl);
            }
            table.family(family)
        })
    }

    /// Returns the differences between an existing table and this layout.
    fn differences(&self, found: &TableDescriptor, starts: &[Bytes]) -> Vec<String> {
        let mut differences = Vec::new();
        for layout in &self.families {
            let name = layout.family.as_str();
            let Some(family) = found.families().iter().find(|f| f.name() == name.as_bytes()) else {
                differences.push(format!("it has no family {name}"));
                continue;
            };
            if let (Some(expected), Some(versions)) = (layout.versions, family.get("VERSIONS"))
                && versions.parse() != Ok(expected)
            {
                differences
                    .push(format!("family {name} keeps {versions} versions, not {expected}"));
            }
            let ttl = family.get("TTL").and_then(|ttl| ttl.parse::<u32>().ok());
            let ttl = ttl.filter(|ttl| *ttl < i32::MAX as u32);
            if ttl != layout.ttl_secs {
                let text =
                    |ttl: Option<u32>| ttl.map_or("never".to_owned(), |s| format!("after {s} s"));
                differences.push(format!(
                    "family {name} drops cells {}, not {}",
                    text(ttl),
                    text(layout.ttl_secs)
                ));
            }
        }
        // Regions split as they grow: additional boundaries are expected.
        let keys = self.splits.keys();
        let missing = keys.iter().filter(|key| !starts.contains(key)).count();
        if missing > 0 {
            differences.push(format!(
                "{missing} of {} expected split keys are not region boundaries",
                keys.len()
            ));
        }
        differences
    }
}

/// Creates the missing tables one after the other and calls `report` after each. An existing table
/// is never changed.
///
/// # Errors
///
/// Returns the error of the first table that could not be created.
pub async fn create_tables(
    client: &Client,
    layouts: &[TableLayout],
    options: &TableOptions,
    mut report: impl FnMut(TableReport),
) -> Result<(), TableError> {
    let mut options = options.clone();
    for layout in layouts {
        let state = create_table(client, layout, &options).await?;
        if let TableState::Created { compression, .. } = &state {
            // The next table does not try compressions that the cluster lacks.
            options.compression = Compression::Named(compression.clone());
        }
        report(TableReport { table: layout.name.clone(), state });
    }
    Ok(())
}

/// Compares a table with its layout; `None` if it does not exist.
///
/// # Errors
///
/// If an operation on HBase fails.
pub async fn inspect_table(
    client: &Client,
    layout: &TableLayout,
) -> Result<Option<TableState>, TableError> {
    let name: TableName = layout.name.parse()?;
    let found = client.admin().describe_table(&name).await.map_err(failed("describe", layout))?;
    match found {
        Some(found) => existing(client, layout, &found).await.map(Some),
        None => Ok(None),
    }
}

/// Returns a function that makes the error of an operation.
fn failed(what: &'static str, layout: &TableLayout) -> impl FnOnce(OperationError) -> TableError {
    let table = layout.name.clone();
    move |source| TableError::Operation { what, table, source }
}

async fn create_table(
    client: &Client,
    layout: &TableLayout,
    options: &TableOptions,
) -> Result<TableState, TableError> {
    let name: TableName = layout.name.parse()?;
    let admin = client.admin();
    if let Some(found) = admin.describe_table(&name).await.map_err(failed("describe", layout))? {
        return existing(client, layout, &found).await;
    }
    let mut rejected = Vec::new();
    for compression in options.compression.candidates() {
        let table = layout.descriptor(&name, options, compression);
        let keys = layout.splits.keys();
        let regions = keys.len() + 1;
        match admin.create_table(&table, keys).await {
            Ok(()) => {
                let compression = compression.to_owned();
                return Ok(TableState::Created { regions, compression, rejected });
            }
            // Another process created it first.
            Err(error) if error.class() == Some(ExceptionClass::TableExists) => {
                let found =
                    admin.describe_table(&name).await.map_err(failed("describe", layout))?;
                return match found {
                    Some(found) => existing(client, layout, &found).await,
                    None => Err(failed("create", layout)(error)),
                };
            }
            Err(error) => match unsupported_compression(compression, &error) {
                None => return Err(failed("create", layout)(error)),
                Some(message) => rejected.push((compression.to_owned(), message)),
            },
        }
    }
    let (compression, message) = rejected.pop().unwrap_or_default();
    Err(TableError::Compression { table: layout.name.clone(), compression, message })
}

async fn existing(
    client: &Client,
    layout: &TableLayout,
    found: &TableDescriptor,
) -> Result<TableState, TableError> {
    let regions = client.table(found.name().clone()).regions().await;
    let regions = regions.map_err(failed("list the regions of", layout))?;
    let starts: Vec<Bytes> = regions.iter().map(|row| row.region.start_key().clone()).collect();
    let differences = layout.differences(found, &starts);
    Ok(if differences.is_empty() { TableState::Matches } else { TableState::Differs(differences) })
}

/// Returns the master's error message if it does not support the compression.
fn unsupported_compression(compression: &str, error: &OperationError) -> Option<String> {
    let (Failure::Call(CallError::Remote { exception, .. }) | Failure::Procedure(exception)) =
        &*error.cause
    else {
        return None;
    };
    let text = exception.text().to_ascii_lowercase();
    let about_compression = text.contains("compress") || text.contains("codec");
    (compression != "NONE" && about_compression).then(|| exception.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(splits: Splits, expected: &[&[u8]]) {
        assert_eq!(splits.keys(), expected);
    }

    #[test]
    fn salted_tables_have_one_region_per_bucket() {
        check(Splits::None, &[]);
        check(Splits::Salt { width: 0, buckets: 20 }, &[]);
        check(Splits::Salt { width: 1, buckets: 1 }, &[]);
        check(Splits::Salt { width: 1, buckets: 4 }, &[&[1], &[2], &[3]]);
        check(Splits::Salt { width: 2, buckets: 3 }, &[&[0, 1], &[0, 2]]);
        let wide = Splits::Salt { width: 1, buckets: 300 }.keys();
        assert_eq!(wide.len(), 255, "buckets beyond the salt's values share regions");
        let long = Splits::Salt { width: 8, buckets: 2 }.keys();
        assert_eq!(long, [&[0, 0, 0, 0, 0, 0, 0, 1][..]]);
    }

    #[test]
    fn random_metric_uids_are_split_evenly() {
        check(
            Splits::Metrics { width: 3, regions: 4 },
            &[&[0x40, 0, 0], &[0x80, 0, 0], &[0xC0, 0, 0]],
        );
        check(Splits::Metrics { width: 1, regions: 1 }, &[]);
        check(Splits::Metrics { width: 0, regions: 9 }, &[]);
        let all = Splits::Metrics { width: 1, regions: 1_000 }.keys();
        assert!(all.is_sorted() && all.first().is_some_and(|key| **key != [0]));
    }
}
