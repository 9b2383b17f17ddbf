//! Opens encrypted streams.

use parking_lot::Mutex;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::rustls::{ClientConfig, pki_types::ServerName};

use super::{
    TlsSettingNames,
    failure::Explainer,
    files::{FileStamps, load, stamps},
    socket::TlsSocket,
};
use crate::{
    security::{SecurityError, TlsConfig},
    transport::{TransportError, TransportErrorKind},
};

/// Opens encrypted streams to the servers of a cluster.
pub(crate) struct TlsConnector {
    config: TlsConfig,
    names: &'static TlsSettingNames,
    state: Mutex<TlsState>,
}

struct TlsState {
    loaded: Arc<ClientConfig>,
    /// State of the files at the last read, successful or not.
    stamps: FileStamps,
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsConnector").field("config", &self.config).finish_non_exhaustive()
    }
}

impl TlsConnector {
    /// Reads the files. Errors name the settings by `names`.
    pub(crate) fn new(
        config: &TlsConfig,
        names: &'static TlsSettingNames,
    ) -> Result<Self, SecurityError> {
        let stamps = stamps(config);
        let loaded = Arc::new(load(config, names)?);
        let state = Mutex::new(TlsState { loaded, stamps });
        Ok(Self { config: config.clone(), names, state })
    }

    /// Negotiates TLS on a connected socket with the server that is named `host`.
    pub(crate) async fn connect(
        &self,
        socket: TcpStream,
        host: &str,
    ) -> Result<TlsSocket, TransportError> {
        let address = socket.peer_addr().ok();
        let explainer = Arc::new(Explainer {
            server: match address {
                Some(address) => format!("{host} ({address})"),
                None => host.to_owned(),
            },
            has_identity: self.config.identity.is_some(),
            names: self.names,
        });
        let name = self.server_name(host, address.map(|address| address.ip()), &explainer)?;
        let connector = tokio_rustls::TlsConnector::from(self.current());
        match timeout(self.config.handshake_timeout, connector.connect(name, socket)).await {
            Ok(Ok(stream)) => Ok(TlsSocket::new(stream, explainer)),
            Ok(Err(error)) => Err(explainer.explain_handshake(error)),
            Err(_) => Err(explainer.timed_out(self.config.handshake_timeout)),
        }
    }

    /// The name to verify. Without verification, a host that certificates cannot have becomes the address.
    fn server_name(
        &self,
        host: &str,
        address: Option<IpAddr>,
        explainer: &Explainer,
    ) -> Result<ServerName<'static>, TransportError> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match ServerName::try_from(bare.to_owned()) {
            Ok(name) => Ok(name),
            Err(_) if !self.config.verify_host => {
                Ok(ServerName::from(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into())))
            }
            Err(error) => {
                let message = explainer.invalid_host(&error);
                Err(TransportError::new(TransportErrorKind::Permanent, message))
            }
        }
    }

    /// Returns the present certificates and keys; if the files have become unusable, the former ones.
    fn current(&self) -> Arc<ClientConfig> {
        let mut state = self.state.lock();
        let stamps = stamps(&self.config);
        if state.stamps != stamps {
            state.stamps = stamps;
            match load(&self.config, self.names) {
                Ok(loaded) => {
                    tracing::info!("TLS files changed and were read again");
                    state.loaded = Arc::new(loaded);
                }
                Err(error) => {
                    let error = TransportError::from(error);
                    tracing::warn!(%error, "changed TLS files are unusable; the former contents stay in use");
                }
            }
        }
        Arc::clone(&state.loaded)
    }
}
