//! Opens sessions for lookups, at one server of the ensemble after another.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    ReadSession, Stream,
    failure::{Lookup, SessionError},
    login::SessionLogin,
    started_login::StartedLogin,
};
use crate::{
    discovery::{
        DiscoveryError,
        quorum::Quorum,
        root::{self, Value},
    },
    random::random,
    security::{SecurityError, ZooKeeperSecurity},
    transport::tls::{TlsConnector, ZOOKEEPER_SETTINGS},
};

/// Time of a lookup at all servers together. It is shorter than the default timeout of a call, so that the caller
/// learns the reason.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);

/// What a session is opened for.
#[derive(Clone, Copy, Debug)]
enum Task<'a> {
    /// The answer of a server.
    Check,
    /// The znode `node` of HBase below `root`.
    Read { root: &'a str, node: &'a str },
}

/// Opens sessions.
#[derive(Debug)]
pub(in crate::discovery) struct SessionConnector {
    quorum: Quorum,
    tls: Option<TlsConnector>,
    login: SessionLogin,
    session_timeout: Duration,
    /// True after the first session without its login.
    has_fallen_back: AtomicBool,
}

impl SessionConnector {
    /// Reads the files of the security.
    pub(in crate::discovery) fn new(
        quorum: Quorum,
        security: &ZooKeeperSecurity,
        session_timeout: Duration,
    ) -> Result<Self, SecurityError> {
        let tls = security.tls.as_ref();
        let tls = tls.map(|config| TlsConnector::new(config, &ZOOKEEPER_SETTINGS)).transpose()?;
        let login = SessionLogin::new(&security.sasl)?;
        Ok(Self { tls, login, ..Self::plain(quorum, session_timeout) })
    }

    /// Opens sessions without security.
    pub(in crate::discovery) const fn plain(quorum: Quorum, session_timeout: Duration) -> Self {
        let (login, has_fallen_back) = (SessionLogin::None, AtomicBool::new(false));
        Self { quorum, tls: None, login, session_timeout, has_fallen_back }
    }

    /// Reads the znode `node` of HBase below `root`.
    pub(in crate::discovery) async fn read(
        &self,
        root: &str,
        node: &str,
        what: &'static str,
    ) -> Result<Value, DiscoveryError> {
        let failed = match self.try_servers(&Task::Read { root, node }).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let znode = &format!("{root}/{node}");
        Err(failed.explain(&Lookup {
            what,
            znode,
            quorum: &self.quorum,
            encrypted: self.tls.is_some(),
        }))
    }

    /// Returns why no server grants a session, if so.
    pub(in crate::discovery) async fn check(
        &self,
        what: &'static str,
    ) -> Result<(), DiscoveryError> {
        let lookup =
            Lookup { what, znode: "", quorum: &self.quorum, encrypted: self.tls.is_some() };
        let checked = self.try_servers(&Task::Check).await;
        checked.map(drop).map_err(|error| error.explain(&lookup))
    }

    /// Asks the servers in random order, until one answers.
    async fn try_servers(&self, task: &Task<'_>) -> Result<Value, SessionError> {
        let mut servers: Vec<_> = self.quorum.servers.iter().collect();
        servers.sort_by_cached_key(|_| random());
        let deadline = Instant::now() + LOOKUP_TIMEOUT;
        let mut worst = SessionError::Unreachable(std::io::ErrorKind::InvalidInput.into());
        while let Some(server) = servers.pop() {
            // A server that does not answer leaves time for the others.
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = left / u32::try_from(servers.len() + 1).unwrap_or(u32::MAX);
            match self.try_server(server, task, Instant::now() + limit).await {
                Ok(value) => return Ok(value),
                Err(error) if error.weight() >= worst.weight() => worst = error,
                Err(_) => {}
            }
        }
        Err(worst)
    }

    /// Asks a server. With an optional login that fails, asks it again without the login.
    async fn try_server(
        &self,
        server: &str,
        task: &Task<'_>,
        deadline: Instant,
    ) -> Result<Value, SessionError> {
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        // A login comes before the socket, which would have to wait for a key distribution centre.
        let tried = match self.login.start(host, deadline).await {
            Ok(login) => self.run(server, task, login, deadline).await,
            Err(error) => Err(error.into()),
        };
        match tried {
            Err(error) if self.login.is_optional() && error.is_of_login() => {
                let value = self.run(server, task, None, deadline).await.map_err(|_| error)?;
                if !self.has_fallen_back.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        server,
                        "the login at ZooKeeper fails; sessions continue without it"
                    );
                }
                Ok(value)
            }
            tried => tried,
        }
    }

    /// Opens a session, uses it and closes it.
    async fn run(
        &self,
        server: &str,
        task: &Task<'_>,
        login: Option<StartedLogin>,
        deadline: Instant,
    ) -> Result<Value, SessionError> {
        let limit = deadline.saturating_duration_since(Instant::now());
        let run = async {
            let mut session = self.open(server).await?;
            if let Some(login) = login {
                session.authenticate(login).await?;
            }
            let value = match task {
                Task::Check => Value::Missing,
                Task::Read { root, node } => root::read(&mut session, root, node).await?,
            };
            session.close().await;
            Ok(value)
        };
        timeout(limit, run).await.unwrap_or(Err(SessionError::TimedOut(limit)))
    }

    async fn open(&self, server: &str) -> Result<ReadSession, SessionError> {
        let socket = TcpStream::connect(server).await.map_err(SessionError::Unreachable)?;
        socket.set_nodelay(true).map_err(SessionError::Unreachable)?;
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.connect(socket, host).await.map_err(SessionError::Security)?),
            None => Box::new(socket),
        };
        ReadSession::open(stream, &self.quorum.chroot, self.session_timeout).await
    }
}
