//! The members of a cluster, and the proof that this node is one of them.
//!
//! Several daemons use one log table at once, each with its own manifest and segments. A member is listed until its rows
//! are stored. So a scan of HBase sees all rows of a member that is no longer listed.
//!
//! A node responds to a read in this order: it takes a view of its held rows, looks which slots it owns
//! ([`SlotHolder::owned`](crate::SlotHolder::owned)), then proves that it is not fenced ([`Membership::prove`]). At the
//! time of the proof no other node has served these slots. So the view has all their rows that were acknowledged before
//! the request and are not stored. The node that reads makes the same proof, because its own rows and names are out of
//! date after a fence.

use std::{collections::BTreeSet, fmt, pin::Pin, time::Duration};

use crate::keys::ClusterId;

/// A daemon that uses the log table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the node.
    pub name: String,
    /// The unique number that the daemon took at its start.
    pub incarnation: u64,
    /// Address at which it answers its peers; `None` if it does not answer.
    pub address: Option<String>,
    /// State of the member.
    pub state: MemberState,
    /// Time since the last observed change of its manifest, or since the last digest that shows its heartbeats.
    pub heartbeat_age: Duration,
    /// Bytes of its log as of its last heartbeat; 0 if they are not known.
    pub log_bytes: u64,
    /// Nodes that it did not reach at its last heartbeat; empty if this node does not watch.
    pub unreached: BTreeSet<u64>,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// The member starts, and has acknowledged nothing yet.
    Joining,
    /// The member acknowledges points, and answers requests for its held rows.
    Serving,
    /// The member has to leave, because others do not reach it, or already leaves. It still owns its log.
    Removed,
    /// The heartbeats have stopped. The member still owns its log.
    Suspected,
    /// The member is fenced. Another node stores the rows of its log.
    Recovering {
        /// The incarnation of the recovering node.
        by: u64,
    },
    /// All rows are stored, and the member acknowledges nothing more.
    Left,
}

/// Why a node cannot prove that it is a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// Another node has fenced it. This is permanent.
    #[error("{0}")]
    Fenced(String),
    /// HBase does not answer now.
    #[error("the log table does not answer: {0}")]
    Unavailable(String),
}

/// How the state of a member that did not answer was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// All rows of its log are stored.
    Stored,
    /// Its heartbeats continue: it may be asked again.
    Serves,
}

/// Future of a [`Membership`] method. It may be dropped before it completes.
pub type MembershipFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The members of a cluster, including this node.
pub trait Membership: fmt::Debug + Send + Sync {
    /// The cluster.
    fn cluster(&self) -> ClusterId;

    /// The incarnation of this node.
    fn this(&self) -> u64;

    /// All members including this node, by incarnation, as of the digest that this node has read about a second ago. A
    /// hint: a node that has joined since is missing.
    /// Excludes former incarnations whose rows are in this node's memtables.
    fn members(&self) -> Vec<Member>;

    /// The member of [`Self::members`] with this incarnation.
    fn member(&self, incarnation: u64) -> Option<Member> {
        self.members().into_iter().find(|member| member.incarnation == incarnation)
    }

    /// As [`Self::members`], by a look at all manifests that began after the call. Concurrent callers share one look. A
    /// node that joins is listed before it acknowledges its first point.
    ///
    /// # Errors
    ///
    /// If HBase does not answer, or this node is fenced.
    fn current(&self) -> MembershipFuture<'_, Result<Vec<Member>, ProofError>>;

    /// Proves for a read that this node is not fenced: by its lease, or as [`Self::prove_by_append`].
    ///
    /// # Errors
    ///
    /// If the node is fenced, or HBase does not answer within about two seconds.
    fn prove(&self) -> MembershipFuture<'_, Result<(), ProofError>>;

    /// Proves that this node was not fenced at the call: an append or a change of the manifest that began after
    /// the call has succeeded. Concurrent callers share one proof.
    ///
    /// # Errors
    ///
    /// If the node is fenced, or HBase does not answer within about two seconds.
    fn prove_by_append(&self) -> MembershipFuture<'_, Result<(), ProofError>>;

    /// Reports that a member could not be reached. If its heartbeats have stopped too, its recovery begins sooner, if this
    /// node watches. Other nodes learn it by [`Self::report_unreached`].
    fn suspect(&self, incarnation: u64);

    /// Shows the other nodes, with the next heartbeat, which nodes this one does not reach.
    fn report_unreached(&self, unreached: BTreeSet<u64>);

    /// True if the heartbeats of this node succeed.
    fn beats(&self) -> bool;

    /// Records that another node has said that its heartbeats succeed. Then a failure of HBase is one of this node
    /// alone.
    fn note_other_beat(&self);

    /// Returns the nodes that this node has to reach to become a member, as of the last look.
    fn to_reach(&self) -> Vec<Member>;

    /// Returns the nodes that have to go because of broken links, as of the last look and `unreached`, the nodes that
    /// this node does not reach.
    fn unreachable(&self, unreached: &BTreeSet<u64>) -> BTreeSet<u64>;

    /// Waits until the rows of a member are stored, or its heartbeats continue. The caller bounds the time.
    fn settled(&self, incarnation: u64) -> MembershipFuture<'_, Settlement>;
}
