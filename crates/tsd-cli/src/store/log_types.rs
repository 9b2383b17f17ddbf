//! The stores behind their logs, as types. They are opened in `store.rs` and `hbase.rs`.

use tsd_storage::MeteredStorage;
use tsd_storage_embedded::EmbeddedStorage;
use tsd_storage_hbase::HBaseStorage;
use tsd_storage_wal::WalStorage;

/// The embedded store behind its log.
pub(crate) type EmbeddedLog = WalStorage<MeteredStorage<EmbeddedStorage>>;

/// HBase with metrics.
pub(super) type Metered = MeteredStorage<HBaseStorage>;

/// A log in front of it.
pub(crate) type HBaseLog = WalStorage<Metered>;
