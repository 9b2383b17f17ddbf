//! Types of stores behind their logs, which `store.rs` and `hbase.rs` open.

use tsd_storage::MeteredStorage;
use tsd_storage_embedded::EmbeddedStorage;
use tsd_storage_hbase::HBaseStorage;
use tsd_storage_wal::WalStorage;

/// The embedded store behind its log.
pub(crate) type EmbeddedLog = WalStorage<MeteredStorage<EmbeddedStorage>>;

/// HBase with metrics.
pub(super) type Metered = MeteredStorage<HBaseStorage>;

/// HBase behind a log.
pub(crate) type HBaseLog = WalStorage<Metered>;
