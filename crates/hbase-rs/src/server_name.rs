//! Server names: host, port and start code.

use std::{fmt, sync::Arc};

use hbase_rs_protobuf as pb;

/// A process of a region server or master.
///
/// The start code distinguishes a restarted server from its predecessor: an error of the old process
/// must not invalidate state of the new one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName {
    host: Arc<str>,
    port: u16,
    start_code: u64,
}

impl ServerName {
    /// Names the server at `host:port` that was started at `start_code`, in milliseconds.
    #[must_use]
    pub fn new(host: &str, port: u16, start_code: u64) -> Self {
        Self { host: host.into(), port, start_code }
    }

    /// Parses `host,port,startcode`, the form in ZooKeeper and hbase:meta.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, ',');
        let start_code = parts.next()?.parse().ok()?;
        let port = parts.next()?.parse().ok()?;
        let host = parts.next()?;
        (!host.is_empty()).then(|| Self::new(host, port, start_code))
    }

    /// Decodes the message; `None` if it lacks a host or a valid port.
    #[must_use]
    pub(crate) fn from_message(message: &pb::ServerName) -> Option<Self> {
        let port = u16::try_from(message.port()).ok().filter(|port| *port != 0)?;
        let host = message.host_name.as_str();
        (!host.is_empty()).then(|| Self::new(host, port, message.start_code()))
    }

    /// Encodes the name as a message.
    #[must_use]
    #[doc(hidden)]
    pub fn to_message(&self) -> pb::ServerName {
        pb::ServerName {
            host_name: self.host.to_string(),
            port: Some(self.port.into()),
            start_code: Some(self.start_code),
        }
    }

    /// Returns the host as reported by the server.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the start time of the process in milliseconds.
    #[must_use]
    pub const fn start_code(&self) -> u64 {
        self.start_code
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},{},{}", self.host, self.port, self.start_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, u16, u64)>) {
        let read = ServerName::parse(text);
        assert_eq!(read, expected.map(|(host, port, code)| ServerName::new(host, port, code)));
        if let Some(name) = read {
            assert_eq!(name.to_string(), text);
            assert_eq!(ServerName::from_message(&name.to_message()), Some(name));
        }
    }

    #[test]
    fn text_is_host_port_and_start_code() {
        check(
            "rs1.example.org,16020,1700000000001",
            Some(("rs1.example.org", 16020, 1_700_000_000_001)),
        );
        check("::1,16020,1", Some(("::1", 16020, 1)));
        check("rs1,16020", None);
        check("rs1,99999,1", None);
        check(",16020,1", None);
        check("rs1,16020,x", None);
    }

    #[test]
    fn message_without_a_valid_port_is_no_name() {
        let mut message = ServerName::new("rs1", 16020, 1).to_message();
        for port in [None, Some(0), Some(70_000)] {
            message.port = port;
            assert_eq!(ServerName::from_message(&message), None);
        }
    }
}
