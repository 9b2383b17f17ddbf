//! The members of a cluster, as those see them who read from all of them.
//!
//! Several daemons use one log table at once, each with a manifest and segments of its own. A read that is to
//! see every acknowledged point goes these steps, in this order:
//!
//! 1. It takes the members ([`Membership::current`]), and asks each that is [`MemberState::Serving`] for its
//!    held rows. It waits for those that are suspected or recovered ([`Membership::settled`]); the others hold
//!    nothing.
//! 2. A member that is asked takes a snapshot of its held rows, then proves that it was not fenced
//!    ([`Membership::prove`]), and only then says that its answer is complete. The reader proves itself too: its
//!    own held rows are out of date after a fence.
//! 3. The reader opens its scans of HBase after all answers.
//!
//! A member is listed until its rows are stored, so one that is not listed any more has nothing that a scan of
//! HBase would miss.

use std::{fmt, pin::Pin, time::Duration};

use crate::keys::ClusterId;

/// A daemon that uses the log table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the node.
    pub name: String,
    /// The number that it took at its start, and that no other has.
    pub incarnation: u64,
    /// Where it answers to its peers; `None` if it does not.
    pub address: Option<String>,
    /// What it does.
    pub state: MemberState,
    /// Time since its manifest was seen to change.
    pub heartbeat_age: Duration,
    /// Bytes of its log, as of its last heartbeat.
    pub log_bytes: u64,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// It starts, and has acknowledged nothing yet.
    Joining,
    /// It acknowledges points, and answers for its held rows.
    Serving,
    /// Its heartbeats have stopped. It still owns its log.
    Suspected,
    /// It is fenced. A node stores the rows of its log.
    Recovering {
        /// The incarnation of that node.
        by: u64,
    },
    /// All of its rows are stored, and it acknowledges nothing any more.
    Left,
}

/// Why a node cannot prove that it is a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// Another node has fenced it. That does not change any more.
    #[error("{0}")]
    Fenced(String),
    /// HBase does not answer now.
    #[error("the log table does not answer: {0}")]
    Unavailable(String),
}

/// What became of a member that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// All rows of its log are stored.
    Stored,
    /// Its heartbeats go on: it may be asked again.
    Serves,
}

/// A call of [`Membership`]. It may be dropped before its end.
pub type MembershipFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The members of a cluster, and this node among them.
pub trait Membership: fmt::Debug + Send + Sync {
    /// The cluster.
    fn cluster(&self) -> ClusterId;

    /// The incarnation of this node.
    fn this(&self) -> u64;

    /// All members with this node, by incarnation, as of the last look at the log table, about a second ago.
    /// Former incarnations whose rows this node has in its memtables are not listed.
    fn members(&self) -> Vec<Member>;

    /// The one of [`Self::members`] with this incarnation.
    fn member(&self, incarnation: u64) -> Option<Member> {
        self.members().into_iter().find(|member| member.incarnation == incarnation)
    }

    /// As [`Self::members`], by a look at the log table that began after the call. One look serves all who wait
    /// for it. A node that joined since is listed before it acknowledges its first point.
    ///
    /// # Errors
    ///
    /// If HBase does not answer, or this node is fenced.
    fn current(&self) -> MembershipFuture<'_, Result<Vec<Member>, ProofError>>;

    /// Proves that this node was not fenced when it was called: an append, or a change of the manifest, that
    /// began after the call has succeeded. One proof serves all who wait for it.
    ///
    /// # Errors
    ///
    /// If the node is fenced, or HBase does not answer in about two seconds.
    fn prove(&self) -> MembershipFuture<'_, Result<(), ProofError>>;

    /// A member could not be reached: a hint, which makes its recovery begin sooner if its heartbeats have
    /// stopped too.
    fn suspect(&self, incarnation: u64);

    /// Waits until the rows of a member are stored, or its heartbeats go on. The caller bounds the time.
    fn settled(&self, incarnation: u64) -> MembershipFuture<'_, Settlement>;
}
