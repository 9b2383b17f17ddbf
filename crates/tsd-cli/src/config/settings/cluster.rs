//! Settings of a daemon as a node of a cluster.

use std::{path::PathBuf, time::Duration};

use tsd_cluster_net::TlsFiles;

use crate::config::{Config, ConfigError};

/// How a node and its peers reach each other, and how they share reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNetSettings {
    /// Where the node listens for its peers, `host:port`.
    pub bind: String,
    /// Where the peers connect, `host` or `host:port`; `None` derives it from `bind`.
    pub advertise: Option<String>,
    /// Reads see what all nodes hold, not only what is stored.
    pub reads_held: bool,
    /// How long a read waits for a node that does not answer.
    pub read_timeout: Duration,
    /// Maximum distance of the clock from the median of the other nodes.
    pub max_clock_skew: Duration,
    /// The node that owns a series writes it.
    pub forward: bool,
    /// How long a write waits for the owner.
    pub forward_timeout: Duration,
    /// Certificates for the connections between nodes; `None` leaves them unencrypted.
    pub tls: Option<TlsFiles>,
}

pub(super) fn cluster_net(config: &Config) -> Result<ClusterNetSettings, ConfigError> {
    const BIND: &str = "tsd.cluster.bind";
    const ADVERTISE: &str = "tsd.cluster.advertise";
    let bind = config.string(BIND);
    if bind.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(config.bad_value(BIND, "expected address:port"));
    }
    let advertise = config.non_empty(ADVERTISE).map(str::to_owned);
    if advertise.as_ref().is_some_and(|address| address.contains(['/', ' ', ','])) {
        return Err(config.bad_value(ADVERTISE, "expected host or host:port"));
    }
    Ok(ClusterNetSettings {
        bind,
        advertise,
        reads_held: config.text("tsd.cluster.reads") != Some("stored"),
        read_timeout: config.seconds("tsd.cluster.read_timeout"),
        max_clock_skew: Duration::from_millis(config.int("tsd.cluster.max_clock_skew")),
        forward: config.bool("tsd.cluster.forward"),
        forward_timeout: config.seconds("tsd.cluster.forward_timeout"),
        tls: tls_files(config)?,
    })
}

/// The files of the certificates; `None` if no file is set.
fn tls_files(config: &Config) -> Result<Option<TlsFiles>, ConfigError> {
    const KEYS: [&str; 3] = ["tsd.cluster.tls.cert", "tsd.cluster.tls.key", "tsd.cluster.tls.ca"];
    let files = KEYS.map(|key| config.string(key));
    if files.iter().all(String::is_empty) {
        return Ok(None);
    }
    for (key, file) in KEYS.iter().zip(&files) {
        if file.is_empty() {
            let all = KEYS.join(", ");
            return Err(config.bad_value(key, format!("expected a file; set {all} together")));
        }
    }
    let [certificate, key, authority] = files.map(PathBuf::from);
    Ok(Some(TlsFiles { certificate, key, authority }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn certificates_are_set_together() {
        let mut config = Config::default();
        for name in ["cert", "key", "ca"] {
            config.set_flag("test", &format!("tsd.cluster.tls.{name}"), format!("{name}.pem"));
        }
        let files = cluster_net(&config).unwrap().tls.unwrap();
        let names = [files.certificate, files.key, files.authority];
        assert_eq!(names, ["cert.pem", "key.pem", "ca.pem"].map(PathBuf::from));
    }

    #[test]
    fn addresses_of_nodes_are_checked() {
        let of = |key: &str, value: &str| {
            let mut config = Config::default();
            config.set_flag("test", key, value);
            cluster_net(&config)
        };
        let default = cluster_net(&Config::default()).unwrap();
        assert_eq!((&default.bind[..], default.advertise), ("0.0.0.0:4243", None));
        assert_eq!(default.max_clock_skew, Duration::from_millis(500));
        assert!(default.reads_held && default.read_timeout == Duration::from_secs(30));
        assert!(default.forward && !of("tsd.cluster.forward", "false").unwrap().forward);
        assert!(!of("tsd.cluster.reads", "stored").unwrap().reads_held);
        let advertised = of("tsd.cluster.advertise", "tsd1:9").unwrap().advertise;
        assert_eq!(advertised.as_deref(), Some("tsd1:9"));
        assert_eq!(default.tls, None);
        for (key, bad) in [
            ("tsd.cluster.tls.cert", "node.pem"),
            ("tsd.cluster.bind", "10.0.0.1"),
            ("tsd.cluster.bind", "10.0.0.1:x"),
            ("tsd.cluster.advertise", "http://tsd1"),
        ] {
            assert!(of(key, bad).unwrap_err().to_string().contains("expected"), "{bad}");
        }
    }
}
