//! Discovery through the znodes that HBase writes to ZooKeeper.
//!
//! | ensemble | sessions |
//! |---|---|
//! | without security | one of the crate `zookeeper-client`, opened on first use and kept |
//! | with TLS or SASL | [of this crate](super::session), one for each lookup |
//!
//! An expired session fails all later requests, so the client drops a session at its first failure. A request during
//! a disconnect blocks, so its time is bounded. A session that does not respond in that time is dropped as well; the
//! next session may connect to another server of the ensemble. Addresses are as the servers report them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{sleep, timeout},
};
use zookeeper_client::{Client, Error};

use super::{
    Discovery, DiscoveryError, DiscoveryFuture,
    quorum::Quorum,
    root::{self, Znodes},
    session::{Lookup, NO_AUTH, SASL_REQUIRED, SessionConnector, SessionError},
    znode::{MASTER, META_SERVER, read_master_znode, read_meta_server_znode},
};
use crate::{
    security::{SecurityError, ZooKeeperSasl, ZooKeeperSecurity},
    server_name::ServerName,
};

/// How long a server of the ensemble may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a session may take to read the znodes of a lookup.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// After this time without a session, the servers are asked why.
const DIAGNOSIS_DELAY: Duration = Duration::from_secs(1);

/// Requested session timeout by default.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Discovery through ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeperDiscovery {
    quorum: Quorum,
    /// Parent znode of HBase's znodes; empty for `/`.
    root: String,
    session_timeout: Duration,
    sessions: Sessions,
}

#[derive(Debug)]
enum Sessions {
    /// A session that is kept.
    Plain(Mutex<Option<Client>>),
    /// A session for each lookup.
    Secure(Box<SessionConnector>),
}

impl ZooKeeperDiscovery {
    /// Uses the ensemble `quorum`, written as `host[:port],…[/chroot]`, and HBase's parent znode `root`
    /// (`zookeeper.znode.parent`, `/hbase` by default).
    #[must_use]
    pub fn new(quorum: &str, root: &str) -> Self {
        Self {
            quorum: Quorum::parse(quorum),
            root: root.trim_end_matches('/').to_owned(),
            session_timeout: SESSION_TIMEOUT,
            sessions: Sessions::Plain(Mutex::new(None)),
        }
    }

    /// As [`Self::new`], with encrypted or authenticated sessions.
    ///
    /// # Errors
    ///
    /// If a file of the security cannot be used, or this build lacks a feature.
    pub fn with_security(
        quorum: &str,
        root: &str,
        security: &ZooKeeperSecurity,
    ) -> Result<Self, SecurityError> {
        let mut discovery = Self::new(quorum, root);
        if security.tls.is_some() || security.sasl != ZooKeeperSasl::None {
            let quorum = discovery.quorum.clone();
            discovery.sessions = Sessions::Secure(Box::new(SessionConnector::new(
                quorum,
                security,
                SESSION_TIMEOUT,
            )?));
        }
        Ok(discovery)
    }

    /// Sets the requested timeout of a session that is kept; the ensemble may grant another.
    #[must_use]
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    async fn read(&self, node: &str, what: &'static str) -> Result<Bytes, DiscoveryError> {
        let value = match &self.sessions {
            Sessions::Secure(sessions) => sessions.read(&self.root, node, what).await?,
            Sessions::Plain(session) => {
                // One request at a time is enough: there are few znodes, and callers cache the results.
                let mut session = session.lock().await;
                // Put back only after a response, since the caller may drop this future while it waits.
                let client = match session.take() {
                    Some(client) => client,
                    None => self.connect(what).await?,
                };
                let mut reads = PlainReads(client);
                let read = timeout(READ_TIMEOUT, root::read(&mut reads, &self.root, node)).await;
                let value = match read {
                    Ok(read) => read.map_err(|error| self.failed(what, node, &error))?,
                    Err(_) => {
                        return Err(self.explain(SessionError::TimedOut(READ_TIMEOUT), what, node));
                    }
                };
                *session = Some(reads.0);
                value
            }
        };
        value.found(what, &self.root, self.quorum.to_string())
    }

    /// Fails if no server of the ensemble accepts connections. The ZooKeeper client tries them until
    /// its session timeout, and does not report why none accepts.
    async fn check_reachable(&self) -> Result<(), DiscoveryError> {
        let servers = self.quorum.servers.iter();
        let mut connects: FuturesUnordered<_> = servers
            .map(|server| async move {
                let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(server)).await;
                connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map(drop)
            })
            .collect();
        let mut last = None;
        while let Some(connected) = connects.next().await {
            match connected {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        let source = Arc::new(last.unwrap_or_else(|| std::io::ErrorKind::InvalidInput.into()));
        Err(DiscoveryError::Unreachable { quorum: self.quorum.to_string(), source })
    }

    async fn connect(&self, what: &'static str) -> Result<Client, DiscoveryError> {
        self.check_reachable().await?;
        let quorum = self.quorum.to_string();
        let connecting =
            Client::connector().with_session_timeout(self.session_timeout).connect(&quorum);
        tokio::select! {
            connected = connecting => connected.map_err(|error| self.failed(what, "", &error)),
            error = self.diagnose(what) => Err(error),
        }
    }

    /// Asks the servers why there is no session yet, which the ZooKeeper client does not report. Ends only with an
    /// error.
    async fn diagnose(&self, what: &'static str) -> DiscoveryError {
        loop {
            sleep(DIAGNOSIS_DELAY).await;
            let sessions = SessionConnector::plain(self.quorum.clone(), self.session_timeout);
            if let Err(error) = sessions.check(what).await {
                return error;
            }
        }
    }

    fn failed(&self, what: &'static str, node: &str, error: &Error) -> DiscoveryError {
        let quorum = self.quorum.to_string();
        let code = match error {
            Error::NoAuth => NO_AUTH,
            // These sessions do not authenticate.
            Error::AuthFailed => SASL_REQUIRED,
            Error::UnexpectedErrorCode(code) => *code,
            Error::BadArguments(reason) => {
                return DiscoveryError::InvalidQuorum { quorum, reason: (**reason).to_owned() };
            }
            error => return DiscoveryError::ZooKeeper { what, quorum, reason: error.to_string() },
        };
        self.explain(SessionError::Code(code), what, node)
    }

    fn explain(&self, error: SessionError, what: &'static str, node: &str) -> DiscoveryError {
        let znode = &format!("{}/{node}", self.root);
        error.explain(&Lookup { what, znode, quorum: &self.quorum, encrypted: false })
    }
}

/// Reads by the crate `zookeeper-client`.
struct PlainReads(Client);

impl Znodes for PlainReads {
    type Error = Error;

    async fn data(&mut self, path: &str) -> Result<Option<Bytes>, Error> {
        match self.0.get_data(path).await {
            Ok((data, _)) => Ok(Some(data.into())),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn children(&mut self, path: &str) -> Result<Option<Vec<String>>, Error> {
        match self.0.list_children(path).await {
            Ok(children) => Ok(Some(children)),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Discovery for ZooKeeperDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        Box::pin(async {
            read_meta_server_znode(&self.read("meta-region-server", META_SERVER).await?)
        })
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        Box::pin(async { read_master_znode(&self.read("master", MASTER).await?) })
    }
}
