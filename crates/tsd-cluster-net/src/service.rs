//! Interfaces through which a node responds to its peers.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tsd_cluster::Membership;
use tsd_model::{Uid, UidKind};
use tsd_storage::{BoxFuture, HeldRowReader, StorageError};

use crate::{
    forward::receiver::ForwardReceiver, names::forgotten::ForgottenNames, node_report::NodeReport,
    read_slots::ReadSlots,
};

/// Requests of peers that do not concern held rows.
pub trait NodeControl: fmt::Debug + Send + Sync + 'static {
    /// Returns the node's report on itself.
    fn report(&self) -> NodeReport;

    /// Logs why another node does not join. The texts come from that node.
    fn note_refusal(&self, node: &str, reason: &str);

    /// Returns the running queries, as a JSON list of bounded length.
    fn queries(&self) -> BoxFuture<'_, String>;

    /// Cancels a query. Returns false if it does not run.
    fn cancel_query(&self, id: u64) -> bool;

    /// Removes names and UIDs, and everything derived from them, from all caches.
    fn forget(&self, names: &ForgottenNames);

    /// Returns the UIDs of names, and assigns UIDs to new names. `None` stands for a name that gets no UID.
    fn assign_uids(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>>;

    /// Flushes all rows.
    ///
    /// # Errors
    ///
    /// The reason why the rows are not flushed.
    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>>;
}

/// The services of a node for its peers. Clones share them.
#[derive(Clone, Debug)]
pub struct PeerService {
    /// Reads the held rows.
    pub rows: Arc<dyn HeldRowReader>,
    /// The slots for whose rows the node responds.
    pub slots: Arc<dyn ReadSlots>,
    /// Proves that the node is not fenced.
    pub membership: Arc<dyn Membership>,
    /// Takes writes of other nodes; `None` if the cluster does not forward writes.
    pub writes: Option<Arc<dyn ForwardReceiver>>,
    /// Everything else.
    pub node: Arc<dyn NodeControl>,
}
