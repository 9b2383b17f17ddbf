//! The members of a cluster, for reads that ask all of them.
//!
//! Several daemons use one log table at once, each with its own manifest and segments. To see every acknowledged
//! point, a read takes these steps in this order:
//!
//! 1. It reads the members ([`Membership::current`]) and asks each [`MemberState::Serving`] member for its held
//!    rows. It waits for suspected members and for members in recovery ([`Membership::settled`]). Other members
//!    hold no rows.
//! 2. A member takes a snapshot of its held rows, then proves that it was not fenced ([`Membership::prove`]),
//!    and only then reports its answer as complete. The reader makes the same proof, because its own held rows
//!    are out of date after a fence.
//! 3. The reader opens its scans of HBase after all answers.
//!
//! A member is listed until its rows are stored. So a scan of HBase sees all rows of a member that is no longer
//! listed.

use std::{fmt, pin::Pin, time::Duration};

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
    /// Time since the last observed change of its manifest.
    pub heartbeat_age: Duration,
    /// Bytes of its log, as of its last heartbeat.
    pub log_bytes: u64,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// The member starts, and has acknowledged nothing yet.
    Joining,
    /// The member acknowledges points, and answers requests for its held rows.
    Serving,
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

    /// All members including this node, by incarnation, as of the last look at the log table about a second ago.
    /// Excludes former incarnations whose rows are in this node's memtables.
    fn members(&self) -> Vec<Member>;

    /// The member of [`Self::members`] with this incarnation.
    fn member(&self, incarnation: u64) -> Option<Member> {
        self.members().into_iter().find(|member| member.incarnation == incarnation)
    }

    /// As [`Self::members`], by a look at the log table that began after the call. Concurrent callers share one
    /// look. A node that joins is listed before it acknowledges its first point.
    ///
    /// # Errors
    ///
    /// If HBase does not answer, or this node is fenced.
    fn current(&self) -> MembershipFuture<'_, Result<Vec<Member>, ProofError>>;

    /// Proves that this node was not fenced at the call: an append or a change of the manifest that began after
    /// the call has succeeded. Concurrent callers share one proof.
    ///
    /// # Errors
    ///
    /// If the node is fenced, or HBase does not answer within about two seconds.
    fn prove(&self) -> MembershipFuture<'_, Result<(), ProofError>>;

    /// Reports that a member could not be reached. If its heartbeats have stopped too, its recovery begins
    /// sooner.
    fn suspect(&self, incarnation: u64);

    /// Waits until the rows of a member are stored, or its heartbeats continue. The caller bounds the time.
    fn settled(&self, incarnation: u64) -> MembershipFuture<'_, Settlement>;
}
