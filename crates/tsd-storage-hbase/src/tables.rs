//! The tables a daemon needs, and how they are made.

use bytes::Bytes;
use hbase_rs::{
    CallError, Client, ExceptionClass, Failure, FamilyDescriptor, OperationError, TableDescriptor,
    TableName, TableNameError,
};
use tsd_model::Family;

/// A table as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLayout {
    /// Its name.
    pub name: String,
    /// Its families.
    pub families: Vec<FamilyLayout>,
    /// Where its regions begin.
    pub splits: Splits,
}

/// A column family of a [`TableLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyLayout {
    /// Its name.
    pub family: Family,
    /// Versions of a cell that are kept; HBase's default where none is said.
    pub versions: Option<u32>,
    /// Seconds after which cells are dropped; never where none is said.
    pub ttl_secs: Option<u32>,
}

/// Where the regions of a table begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Splits {
    /// One region, for HBase to split as it grows. Right for small tables, and without salt also for
    /// data: metrics get their UIDs in sequence, so no split made beforehand would fit.
    #[default]
    None,
    /// One region a salt bucket.
    Salt {
        /// Bytes of the salt.
        width: usize,
        /// Buckets.
        buckets: u32,
    },
    /// Even parts of the space of metric UIDs, for metrics whose UIDs are drawn by chance.
    Metrics {
        /// Bytes of a metric UID.
        width: usize,
        /// Regions.
        regions: u32,
    },
}

/// How the files of tables are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Compression of files.
    pub compression: Compression,
    /// Encoding of keys in blocks: `NONE`, `PREFIX`, `DIFF`, `FAST_DIFF`, `ROW_INDEX_V1`.
    pub encoding: String,
    /// Bloom filters: `NONE`, `ROW`, `ROWCOL`.
    pub bloom_filter: String,
}

/// Compression of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compression {
    /// The first of Snappy, LZ4, Zstandard and gzip that the cluster can do; none at all if it can do
    /// none of them.
    Best,
    /// This one, by HBase's name for it, or an error.
    Named(String),
}

/// What became of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// Its name.
    pub table: String,
    /// What became of it.
    pub state: TableState,
}

/// What became of a table of [`create_tables`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableState {
    /// It was made.
    Created {
        /// Its regions.
        regions: usize,
        /// Compression of its files.
        compression: String,
        /// Compressions that the cluster refused before, with its words.
        refused: Vec<(String, String)>,
    },
    /// It was there and is as it should be.
    Fits,
    /// It was there and is otherwise. It was left alone.
    Differs(Vec<String>),
}

/// A table that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A name that HBase does not take.
    #[error("bad table name")]
    Name(#[from] TableNameError),
    /// The cluster lacks the compression.
    #[error(
        "the cluster cannot compress {table} with {compression} ({message}); choose another one of NONE, SNAPPY, LZ4, ZSTD, GZ"
    )]
    Compression {
        /// Table that was to be made.
        table: String,
        /// What it cannot do.
        compression: String,
        /// What the master said.
        message: String,
    },
    /// HBase did not do it.
    #[error("cannot {what} table {table}")]
    Operation {
        /// What was to be done.
        what: &'static str,
        /// With which table.
        table: String,
        /// What it met with.
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
    /// Tried in this order: those that cost little first.
    const BEST: [&str; 5] = ["SNAPPY", "LZ4", "ZSTD", "GZ", "NONE"];

    /// The compression of that name; `GZIP` is HBase's `GZ`, and `auto` is [`Self::Best`].
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
    /// First keys of the regions, without the first one's, which is empty.
    #[must_use]
    pub fn keys(&self) -> Vec<Bytes> {
        match *self {
            Self::None | Self::Salt { width: 0, .. } | Self::Metrics { width: 0, .. } => Vec::new(),
            Self::Salt { width, buckets } => {
                // More buckets than the salt has values collide; their regions are the same.
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

/// The low `width` bytes of a number, big-endian.
fn low_bytes(number: u64, width: usize) -> Bytes {
    let bytes = number.to_be_bytes();
    let zeros = vec![0; width.saturating_sub(bytes.len())];
    let low = bytes.get(bytes.len().saturating_sub(width)..).unwrap_or_default();
    [&zeros, low].concat().into()
}

impl TableLayout {
    /// A table of points or rollups: one version, so that an overwritten point is gone.
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

    /// The table of what is known of series.
    #[must_use]
    pub fn meta(name: &str) -> Self {
        Self::of(name, &[(Family::Name, None)])
    }

    /// Drops points after so many seconds.
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

    /// What of a table that exists is not as it should be.
    fn differences(&self, found: &TableDescriptor, starts: &[Bytes]) -> Vec<String> {
        let mut differences = Vec::new();
        for layout in &self.families {
            let name = layout.family.as_str();
            let Some(family) = found.families().iter().find(|f| f.name() == name.as_bytes()) else {
                differences.push(format!("it has no family {name}"));
                continue;
            };
            if let (Some(wanted), Some(versions)) = (layout.versions, family.get("VERSIONS"))
                && versions.parse() != Ok(wanted)
            {
                differences.push(format!("family {name} keeps {versions} versions, not {wanted}"));
            }
            let ttl = family.get("TTL").and_then(|ttl| ttl.parse::<u32>().ok());
            let ttl = ttl.filter(|ttl| *ttl < i32::MAX as u32);
            if ttl != layout.ttl_secs {
                let words =
                    |ttl: Option<u32>| ttl.map_or("never".to_owned(), |s| format!("after {s} s"));
                differences.push(format!(
                    "family {name} drops cells {}, not {}",
                    words(ttl),
                    words(layout.ttl_secs)
                ));
            }
        }
        // Regions split as they grow: boundaries beyond those asked for are in order.
        let keys = self.splits.keys();
        let missing = keys.iter().filter(|key| !starts.contains(key)).count();
        if missing > 0 {
            differences.push(format!(
                "{missing} of {} boundaries between its parts are not boundaries of regions",
                keys.len()
            ));
        }
        differences
    }
}

/// Makes the tables that are missing, one after the other, and reports of each as soon as it is settled.
/// A table that exists is never changed.
///
/// # Errors
///
/// With the first table that could not be made.
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
            // The next table need not try what the cluster lacks.
            options.compression = Compression::Named(compression.clone());
        }
        report(TableReport { table: layout.name.clone(), state });
    }
    Ok(())
}

/// Looks at a table and changes nothing; `None` where it does not exist.
///
/// # Errors
///
/// When HBase does not say.
pub async fn inspect_table(
    client: &Client,
    layout: &TableLayout,
) -> Result<Option<TableState>, TableError> {
    let name: TableName = layout.name.parse()?;
    let found = client.admin().describe_table(&name).await.map_err(|source| {
        TableError::Operation { what: "describe", table: layout.name.clone(), source }
    })?;
    match found {
        Some(found) => existing(client, layout, &found).await.map(Some),
        None => Ok(None),
    }
}

async fn create_table(
    client: &Client,
    layout: &TableLayout,
    options: &TableOptions,
) -> Result<TableState, TableError> {
    let name: TableName = layout.name.parse()?;
    let failed = |what| {
        let table = layout.name.clone();
        move |source| TableError::Operation { what, table, source }
    };
    let admin = client.admin();
    if let Some(found) = admin.describe_table(&name).await.map_err(failed("describe"))? {
        return existing(client, layout, &found).await;
    }
    let mut refused = Vec::new();
    for compression in options.compression.candidates() {
        let table = layout.descriptor(&name, options, compression);
        let keys = layout.splits.keys();
        let regions = keys.len() + 1;
        match admin.create_table(&table, keys).await {
            Ok(()) => {
                let compression = compression.to_owned();
                return Ok(TableState::Created { regions, compression, refused });
            }
            // Somebody else was quicker.
            Err(error) if error.class() == Some(ExceptionClass::TableExists) => {
                let found = admin.describe_table(&name).await.map_err(failed("describe"))?;
                return match found {
                    Some(found) => existing(client, layout, &found).await,
                    None => Err(failed("create")(error)),
                };
            }
            Err(error) => match lacks(compression, &error) {
                None => return Err(failed("create")(error)),
                Some(message) => refused.push((compression.to_owned(), message)),
            },
        }
    }
    let (compression, message) = refused.pop().unwrap_or_default();
    Err(TableError::Compression { table: layout.name.clone(), compression, message })
}

async fn existing(
    client: &Client,
    layout: &TableLayout,
    found: &TableDescriptor,
) -> Result<TableState, TableError> {
    let regions = client.table(found.name().clone()).regions().await.map_err(|source| {
        TableError::Operation { what: "list the regions of", table: layout.name.clone(), source }
    })?;
    let starts: Vec<Bytes> = regions.iter().map(|row| row.region.start_key().clone()).collect();
    let differences = layout.differences(found, &starts);
    Ok(if differences.is_empty() { TableState::Fits } else { TableState::Differs(differences) })
}

/// What the master says of a compression it cannot do; `None` where the refusal is about something else.
fn lacks(compression: &str, error: &OperationError) -> Option<String> {
    let (Failure::Call(CallError::Remote { exception, .. })
    | Failure::Action(exception)
    | Failure::Procedure(exception)) = &*error.cause
    else {
        return None;
    };
    let text = exception.text().to_ascii_lowercase();
    let about = text.contains("compress") || text.contains("codec");
    (compression != "NONE" && about).then(|| exception.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(splits: Splits, expected: &[&[u8]]) {
        assert_eq!(splits.keys(), expected);
    }

    #[test]
    fn salted_tables_have_a_region_a_bucket() {
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
    fn metrics_drawn_by_chance_are_spread_evenly() {
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
