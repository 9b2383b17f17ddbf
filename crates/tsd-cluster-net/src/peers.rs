//! Clients of all other members, and requests to all members.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::{join_all, try_join_all};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout_at},
};
use tsd_cluster::{Member, MemberState, Membership, Settlement};

use crate::{
    client::PeerClient,
    clock_offset::ClockOffset,
    config::{NetConfig, NodeIdentity},
    error::{MembersError, PeerError},
    metrics::NetMetrics,
    node_report::NodeReport,
    service::NodeControl,
};

/// Time without a complete response after which a member is reported as silent.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// Pause before the next check of a silent member whose heartbeats continue.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Clients of the other members, created on demand, at most one for each member.
#[derive(Debug)]
pub struct Peers {
    identity: Arc<NodeIdentity>,
    config: NetConfig,
    membership: Arc<dyn Membership>,
    clients: Mutex<HashMap<u64, Arc<PeerClient>>>,
    /// Runtime of the connections. Callers may have single-threaded runtimes that are busy with other work.
    runtime: Handle,
}

/// Response of one member to a request to all members.
#[derive(Clone, Debug)]
pub struct NodeResponse<T> {
    /// The member.
    pub member: Member,
    /// True for this node.
    pub is_this: bool,
    /// The response.
    pub response: Result<T, PeerError>,
}

/// Report of a node, and how far its clock is ahead of this node's clock, milliseconds.
pub type TimedReport = (NodeReport, i64);

impl Peers {
    /// Returns the peers that `membership` lists. Their connections belong to the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new(identity: NodeIdentity, config: NetConfig, membership: Arc<dyn Membership>) -> Self {
        let (clients, runtime) = (Mutex::default(), Handle::current());
        Self { identity: Arc::new(identity), config, membership, clients, runtime }
    }

    /// Identity of this node.
    pub(crate) const fn identity(&self) -> &Arc<NodeIdentity> {
        &self.identity
    }

    /// Limits of the connections.
    pub(crate) const fn config(&self) -> &NetConfig {
        &self.config
    }

    /// The members of the cluster.
    #[must_use]
    pub fn membership(&self) -> &Arc<dyn Membership> {
        &self.membership
    }

    /// Returns the client of a member. If the member has not published an address, requests fail.
    #[must_use]
    pub fn client(&self, member: &Member) -> Arc<PeerClient> {
        let mut clients = self.clients.lock();
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

    /// Returns the client of a member, if it exists already.
    pub(crate) fn known_client(&self, incarnation: u64) -> Option<Arc<PeerClient>> {
        self.clients.lock().get(&incarnation).map(Arc::clone)
    }

    /// Returns all members except this one.
    pub(crate) fn others(&self) -> Vec<Member> {
        let mut members = self.membership.members();
        members.retain(|member| member.incarnation != self.membership.this());
        members
    }

    /// Measures how far the clock of a member is ahead of this node's clock.
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

    /// Asks all members for their reports.
    pub async fn reports(
        &self,
        node: &dyn NodeControl,
        limit: Duration,
    ) -> Vec<NodeResponse<TimedReport>> {
        let deadline = Instant::now() + limit;
        let ask = |member: Member| async move {
            if member.incarnation == self.membership.this() {
                let response = Ok((node.report(), 0));
                return NodeResponse { member, is_this: true, response };
            }
            let response = self.timed_report(&member, deadline).await;
            let response = response.map(|(report, offset)| (report, offset.ahead_ms));
            NodeResponse { member, is_this: false, response }
        };
        join_all(self.listed().into_iter().map(ask)).await
    }

    /// Flushes all rows of all members, including members that have just joined. If the members cannot be read,
    /// this node's response is an error.
    pub async fn flush(&self, node: &dyn NodeControl, limit: Duration) -> Vec<NodeResponse<()>> {
        let deadline = Instant::now() + limit;
        let (members, known) = &match self.look(deadline).await {
            Ok(members) => (members, Ok(())),
            Err(error) => {
                let error = format!("there may be nodes that were not flushed: {error}");
                (self.membership.members(), Err(PeerError::Failed(error.into())))
            }
        };
        let ask = |member: Member| async move {
            let is_this = member.incarnation == self.membership.this();
            let response = if is_this {
                match timeout_at(deadline, node.flush()).await {
                    Ok(Ok(())) => known.clone(),
                    Ok(Err(error)) => Err(PeerError::Failed(error.to_string().into())),
                    Err(_) => Err(PeerError::Failed("not flushed in time".into())),
                }
            } else {
                self.flush_peer(&member, deadline).await
            };
            NodeResponse { member, is_this, response }
        };
        join_all(listed(members.clone()).into_iter().map(ask)).await
    }

    /// Flushes all rows of all other members. The error names the first member that failed.
    pub(crate) async fn flush_others(&self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        let mut members = self.look(deadline).await.map_err(|error| error.to_string())?;
        members.retain(|member| member.incarnation != self.membership.this());
        let flush = |member: Member| async move {
            let Some(member) = self.joined(member, deadline).await? else { return Ok(()) };
            let flushed = self.flush_peer(&member, deadline).await;
            flushed.map_err(|error| format!("node {} does not flush: {error}", member.name))
        };
        try_join_all(listed(members).into_iter().map(flush)).await.map(drop)
    }

    /// Waits until a joining member has an address: it may hold rows of its former log. Returns `None` if the member
    /// has left, so that its rows are stored.
    async fn joined(
        &self,
        mut member: Member,
        deadline: Instant,
    ) -> Result<Option<Member>, String> {
        while member.address.as_deref().is_none_or(str::is_empty) {
            if Instant::now() + RETRY_PAUSE >= deadline {
                return Err(format!("node {} still joins the cluster", member.name));
            }
            sleep(RETRY_PAUSE).await;
            match self.membership.member(member.incarnation) {
                Some(now) if now.state != MemberState::Left => member = now,
                _ => return Ok(None),
            }
        }
        Ok(Some(member))
    }

    /// Reads the present members.
    pub(crate) async fn look(&self, deadline: Instant) -> Result<Vec<Member>, MembersError> {
        match timeout_at(deadline, self.membership.current()).await {
            Ok(looked) => Ok(looked?),
            Err(_) => Err(MembersError::Timeout),
        }
    }

    /// Asks all members for their running queries, as JSON.
    pub async fn queries(
        &self,
        node: &dyn NodeControl,
        limit: Duration,
    ) -> Vec<NodeResponse<String>> {
        let deadline = Instant::now() + limit;
        let ask = |member: Member| async move {
            let is_this = member.incarnation == self.membership.this();
            let response = if is_this {
                Ok(node.queries().await)
            } else {
                self.client(&member).queries(deadline).await
            };
            NodeResponse { member, is_this, response }
        };
        join_all(self.listed().into_iter().map(ask)).await
    }

    /// Cancels a query of a member. Returns `None` if the member does not exist.
    pub async fn cancel_query(
        &self,
        node: &dyn NodeControl,
        (incarnation, id): (u64, u64),
        limit: Duration,
    ) -> Option<NodeResponse<()>> {
        let member = self.listed().into_iter().find(|member| member.incarnation == incarnation)?;
        let is_this = incarnation == self.membership.this();
        let response = if !is_this {
            self.client(&member).cancel_query(id, Instant::now() + limit).await
        } else if node.cancel_query(id) {
            Ok(())
        } else {
            Err(no_query(id))
        };
        Some(NodeResponse { member, is_this, response })
    }

    /// Flushes a peer, or waits until its rows were recovered.
    async fn flush_peer(&self, member: &Member, deadline: Instant) -> Result<(), PeerError> {
        let client = self.client(member);
        let flushed = tokio::select! {
            flushed = client.flush(deadline) => flushed,
            // A paused or lost node no longer responds.
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

    /// Waits until a recovery has stored the rows of a silent member.
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

/// Returns the error for a query that does not run.
pub(crate) fn no_query(id: u64) -> PeerError {
    PeerError::Failed(format!("no query with the id {id} is running").into())
}

/// Returns the clock, epoch milliseconds.
pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}
