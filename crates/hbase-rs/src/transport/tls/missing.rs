//! Stands in for TLS in builds without it.

use std::convert::Infallible;

use tokio::net::TcpStream;

use super::TlsSettingNames;
use crate::{
    security::{SecurityError, TlsConfig},
    transport::TransportError,
};

/// Cannot be constructed.
#[derive(Debug)]
pub(crate) struct TlsConnector(Infallible);

impl TlsConnector {
    pub(crate) fn new(_: &TlsConfig, _: &'static TlsSettingNames) -> Result<Self, SecurityError> {
        let reason = "hbase-rs was built without its feature rustls".to_owned();
        Err(SecurityError::Unavailable { what: "TLS", reason })
    }

    #[expect(clippy::unused_async, reason = "as with TLS")]
    pub(crate) async fn connect(&self, _: TcpStream, _: &str) -> Result<TcpStream, TransportError> {
        match self.0 {}
    }
}
