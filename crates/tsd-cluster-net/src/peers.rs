//! The clients of all other members, and requests to all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::join_all;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout_at},
};
use tsd_cluster::{Member, MemberState, Membership, Settlement};

use crate::{
    client::PeerClient,
    clocks::ClockOffset,
    config::{NetConfig, NodeIdentity},
    error::PeerError,
    metrics::NetMetrics,
    service::{NodeControl, NodeReport},
};

/// After this time without all of an answer, a member is reported as silent.
const SILENCE: Duration = Duration::from_secs(1);
/// Pause before it is asked again what became of a member whose heartbeats go on.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The other members, each with a client once it was asked. No more clients than members.
#[derive(Debug)]
pub struct Peers {
    identity: Arc<NodeIdentity>,
    config: NetConfig,
    membership: Arc<dyn Membership>,
    clients: Mutex<HashMap<u64, Arc<PeerClient>>>,
    /// Of the connections: callers may have runtimes of one thread, which have other work.
    runtime: Handle,
}

/// What a member has answered to a request to all of them.
#[derive(Clone, Debug)]
pub struct NodeAnswer<T> {
    /// The member.
    pub member: Member,
    /// True for this node.
    pub is_this: bool,
    /// Its answer.
    pub answer: Result<T, PeerError>,
}

/// What a node says of itself, with how far its clock is ahead of that of this node, milliseconds.
pub type TimedReport = (NodeReport, i64);

impl Peers {
    /// The peers that `membership` lists. Connections to them belong to the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new(identity: NodeIdentity, config: NetConfig, membership: Arc<dyn Membership>) -> Self {
        let (clients, runtime) = (Mutex::default(), Handle::current());
        Self { identity: Arc::new(identity), config, membership, clients, runtime }
    }

    /// This node, as its peers check it.
    pub(crate) const fn identity(&self) -> &Arc<NodeIdentity> {
        &self.identity
    }

    /// Limits of its connections.
    pub(crate) const fn config(&self) -> &NetConfig {
        &self.config
    }

    /// The members of the cluster.
    #[must_use]
    pub fn membership(&self) -> &Arc<dyn Membership> {
        &self.membership
    }

    /// The client of a member. If its address was not published, requests fail.
    #[must_use]
    pub fn client(&self, member: &Member) -> Arc<PeerClient> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let address = member.address.as_deref().unwrap_or_default();
        let known = clients.get(&member.incarnation);
        if let Some(client) = known.filter(|client| client.address() == address) {
            return Arc::clone(client);
        }
        let listed = self.membership.members();
        clients.retain(|incarnation, _| listed.iter().any(|m| m.incarnation == *incarnation));
        let identity = Arc::clone(&self.identity);
        let _runtime = self.runtime.enter();
        let client =
            Arc::new(PeerClient::new(address, member.incarnation, identity, self.config.clone()));
        clients.insert(member.incarnation, Arc::clone(&client));
        client
    }

    /// The members but this one.
    pub(crate) fn others(&self) -> Vec<Member> {
        let mut members = self.membership.members();
        members.retain(|member| member.incarnation != self.membership.this());
        members
    }

    /// How far the clock of a member is ahead of that of this node.
    pub(crate) async fn clock_offset(
        &self,
        member: &Member,
        limit: Duration,
    ) -> Result<ClockOffset, PeerError> {
        let (_, offset) = self.timed_report(member, Instant::now() + limit).await?;
        Ok(offset)
    }

    async fn timed_report(
        &self,
        member: &Member,
        deadline: Instant,
    ) -> Result<(NodeReport, ClockOffset), PeerError> {
        let client = self.client(member);
        let (sent, sent_ms) = (Instant::now(), now_ms());
        let report = client.report(deadline).await?;
        let half_ms = sent.elapsed().as_millis() as i64 / 2;
        let ahead_ms = report.time_ms.saturating_sub(sent_ms + half_ms);
        Ok((report, ClockOffset { ahead_ms, error_ms: half_ms + 1 }))
    }

    /// Asks all members for what they say of themselves.
    pub async fn reports(
        &self,
        node: &dyn NodeControl,
        limit: Duration,
    ) -> Vec<NodeAnswer<TimedReport>> {
        let deadline = Instant::now() + limit;
        let ask = |member: Member| async move {
            if member.incarnation == self.membership.this() {
                let answer = Ok((node.report(), 0));
                return NodeAnswer { member, is_this: true, answer };
            }
            let answer = self.timed_report(&member, deadline).await;
            let answer = answer.map(|(report, offset)| (report, offset.ahead_ms));
            NodeAnswer { member, is_this: false, answer }
        };
        join_all(self.listed().into_iter().map(ask)).await
    }

    /// Flushes all rows of all members, also of those that have just joined. If those are not known, this node's
    /// answer is an error.
    pub async fn flush(&self, node: &dyn NodeControl, limit: Duration) -> Vec<NodeAnswer<()>> {
        let deadline = Instant::now() + limit;
        let (members, known) = &match self.look(deadline).await {
            Ok(members) => (members, Ok(())),
            Err(error) => {
                let error = format!("there may be nodes that were not flushed: {error}");
                (self.membership.members(), Err(error))
            }
        };
        let ask = |member: Member| async move {
            let is_this = member.incarnation == self.membership.this();
            let answer = if is_this {
                let flushed = timeout_at(deadline, node.flush()).await;
                flushed
                    .unwrap_or_else(|_| Err("not flushed in time".to_owned()))
                    .and_then(|()| known.clone())
                    .map_err(|error| PeerError::Failed(error.into()))
            } else {
                self.flush_peer(&member, deadline).await
            };
            NodeAnswer { member, is_this, answer }
        };
        join_all(listed(members.clone()).into_iter().map(ask)).await
    }

    /// Looks who the members are now.
    pub(crate) async fn look(&self, deadline: Instant) -> Result<Vec<Member>, String> {
        match timeout_at(deadline, self.membership.current()).await {
            Ok(looked) => looked.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Asks all members for the queries that run, as JSON.
    pub async fn queries(
        &self,
        node: &dyn NodeControl,
        limit: Duration,
    ) -> Vec<NodeAnswer<String>> {
        let deadline = Instant::now() + limit;
        let ask = |member: Member| async move {
            let is_this = member.incarnation == self.membership.this();
            let answer = if is_this {
                Ok(node.queries().await)
            } else {
                self.client(&member).queries(deadline).await
            };
            NodeAnswer { member, is_this, answer }
        };
        join_all(self.listed().into_iter().map(ask)).await
    }

    /// Cancels a query of a member. `None`: there is no such member.
    pub async fn cancel_query(
        &self,
        node: &dyn NodeControl,
        (incarnation, id): (u64, u64),
        limit: Duration,
    ) -> Option<NodeAnswer<()>> {
        let member = self.listed().into_iter().find(|member| member.incarnation == incarnation)?;
        let is_this = incarnation == self.membership.this();
        let answer = if !is_this {
            self.client(&member).cancel_query(id, Instant::now() + limit).await
        } else if node.cancel_query(id) {
            Ok(())
        } else {
            Err(no_query(id))
        };
        Some(NodeAnswer { member, is_this, answer })
    }

    /// Flushes a peer, or waits until its rows were recovered.
    async fn flush_peer(&self, member: &Member, deadline: Instant) -> Result<(), PeerError> {
        let client = self.client(member);
        let flushed = tokio::select! {
            flushed = client.flush(deadline) => flushed,
            // A node that is paused or lost does not answer any more.
            () = self.stored(member) => return Ok(()),
        };
        let Err(error) = flushed else { return Ok(()) };
        self.suspect(member);
        let settled = self.membership.settled(member.incarnation);
        match timeout_at(deadline, settled).await {
            Ok(Settlement::Stored) => Ok(()),
            _ => Err(error),
        }
    }

    /// Waits until a recovery has stored the rows of a member that is silent.
    pub(crate) async fn stored(&self, member: &Member) {
        if matches!(member.state, MemberState::Serving) {
            sleep(SILENCE).await;
            self.suspect(member);
        }
        while self.membership.settled(member.incarnation).await != Settlement::Stored {
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Reports a member as silent.
    pub(crate) fn suspect(&self, member: &Member) {
        NetMetrics::of_process().suspicions.increment(1);
        self.membership.suspect(member.incarnation);
    }

    fn listed(&self) -> Vec<Member> {
        listed(self.membership.members())
    }
}

/// Members that may have rows, by name.
fn listed(mut members: Vec<Member>) -> Vec<Member> {
    members.retain(|member| member.state != MemberState::Left);
    members.sort_by(|a, b| (&a.name, a.incarnation).cmp(&(&b.name, b.incarnation)));
    members
}

/// The error for a query that does not run.
pub(crate) fn no_query(id: u64) -> PeerError {
    PeerError::Failed(format!("no query with the id {id} is running").into())
}

/// The clock, epoch milliseconds.
pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}
