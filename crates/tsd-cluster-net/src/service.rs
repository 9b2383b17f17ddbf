//! What a node answers its peers.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{forward::ForwardReceiver, names::ForgottenNames};
use tsd_cluster::Membership;

use tsd_model::{Uid, UidKind};
use tsd_storage::{BoxFuture, HeldRowReader, KeyRange, RowFilter, Table};

/// Which held rows are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldQuery {
    /// The table.
    pub table: Table,
    /// Row keys: ranges in order, none of which overlap.
    pub ranges: Vec<KeyRange>,
    /// Condition on the row keys. A node may return rows that do not match.
    pub filter: Option<RowFilter>,
}

impl HeldQuery {
    /// True if a row is asked for.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(key))
    }
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// Version of its program.
    pub version: String,
    /// Bytes of its log that are not trimmed.
    pub log_bytes: u64,
    /// Rows that it holds.
    pub rows: u64,
    /// Bytes of their memtables.
    pub memtable_bytes: u64,
    /// Its clock, epoch milliseconds.
    pub time_ms: i64,
    /// What its health check says.
    pub problems: Vec<String>,
}

/// What a node says of itself and does for its peers, besides its rows.
pub trait NodeControl: fmt::Debug + Send + Sync + 'static {
    /// What the node says of itself.
    fn report(&self) -> NodeReport;

    /// Notes why another node does not join. The texts come from that node.
    fn note_refusal(&self, node: &str, reason: &str);

    /// The queries that run, as a JSON list of bounded length.
    fn queries(&self) -> BoxFuture<'_, String>;

    /// Cancels a query. False if it does not run.
    fn cancel_query(&self, id: u64) -> bool;

    /// Removes names and UIDs, and what was made of them, from all caches.
    fn forget(&self, names: &ForgottenNames);

    /// UIDs of names, which are assigned to those that have none; `None` in place of a name that gets none.
    fn assign_uids(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>>;

    /// Flushes all rows.
    ///
    /// # Errors
    ///
    /// Why they are not flushed.
    fn flush(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// The node, as its peers ask it. Clones share it.
#[derive(Clone, Debug)]
pub struct PeerService {
    /// The rows that it holds.
    pub rows: Arc<dyn HeldRowReader>,
    /// Proves that it is not fenced.
    pub membership: Arc<dyn Membership>,
    /// Takes writes of other nodes; `None` if they are not forwarded.
    pub writes: Option<Arc<dyn ForwardReceiver>>,
    /// Everything else.
    pub node: Arc<dyn NodeControl>,
}
