//! Settings of a daemon as a node of a cluster.

use std::{path::PathBuf, time::Duration};

use tsd_cluster::{MAX_SLOT_TAGS, SLOT_TAGS};
use tsd_cluster_log::CHANGEABLE;
use tsd_cluster_net::TlsFiles;
use tsd_model::{NameError, NameRole, NameRule};

use super::{extra_data, server};
use crate::config::{
    Config, ConfigError,
    keys::{self, ValueKind},
};

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
    /// Connections of other nodes that the node accepts.
    pub max_connections: usize,
    /// Tag keys whose values place a series, in order of preference.
    pub slot_tags: Vec<String>,
    /// How long a write waits for the owner.
    pub forward_timeout: Duration,
    /// After a removal because of broken connections: how long they must have held before the node joins again.
    pub held_for: Option<Duration>,
    /// How long a node that stops serves at least while it is unready.
    pub drain_linger: Duration,
    /// Certificates for the connections between nodes; `None` leaves them unencrypted.
    pub tls: Option<TlsFiles>,
    /// Settings that all nodes have alike and that may change, with values that do not depend on their notation.
    pub alike: Vec<(&'static str, String)>,
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
        max_connections: config.int("tsd.cluster.max_connections"),
        slot_tags: slot_tags(config)?,
        forward_timeout: config.seconds("tsd.cluster.forward_timeout"),
        held_for: None,
        drain_linger: config.seconds("tsd.cluster.drain_linger"),
        tls: tls_files(config)?,
        alike: alike(config)?,
    })
}

/// The tag keys that place series.
fn slot_tags(config: &Config) -> Result<Vec<String>, ConfigError> {
    let text = config.string(SLOT_TAGS);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let rule = NameRule::with_special_characters(&config.string("tsd.core.tag.allow_specialchars"));
    let tags: Vec<String> = text.split(',').map(|tag| tag.trim().to_owned()).collect();
    for (at, tag) in tags.iter().enumerate() {
        if let Err(NameError::IllegalCharacter { character, .. }) =
            rule.check(NameRole::Metric, tag)
        {
            let text = format!("expected tag keys, and {tag:?} has the character '{character}'");
            return Err(config.bad_value(SLOT_TAGS, text));
        }
        if tag.is_empty() || tags.iter().take(at).any(|other| other == tag) {
            let text = "expected different tag keys that are separated by commas";
            return Err(config.bad_value(SLOT_TAGS, text));
        }
    }
    if tags.len() > MAX_SLOT_TAGS {
        let text =
            format!("expected at most {MAX_SLOT_TAGS} tag keys, and there are {}", tags.len());
        return Err(config.bad_value(SLOT_TAGS, text));
    }
    Ok(tags)
}

fn alike(config: &Config) -> Result<Vec<(&'static str, String)>, ConfigError> {
    let value = |name: &str| match name {
        "tsd.core.timezone" => server::zone_name(config),
        "tsd.rollups.config" if !config.bool("tsd.rollups.enable") => Ok(String::new()),
        "tsd.rollups.config" | "tsd.core.histograms.config" => extra_data::canonical(config, name),
        name if keys::find(name).is_some_and(|key| key.kind == ValueKind::Bool) => {
            Ok(config.bool(name).to_string())
        }
        name => Ok(config.string(name)),
    };
    let shown = |text: String| if text.is_empty() { "not set".to_owned() } else { text };
    CHANGEABLE.into_iter().map(|name| Ok((name, shown(value(name)?)))).collect()
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
    fn settings_that_nodes_have_alike_do_not_depend_on_their_notation() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("codecs.json");
        std::fs::write(
            &file,
            r#"{"b": 1,
            "a": {"d": 2, "c": 3}}"#,
        )
        .unwrap();
        let file = file.to_str().unwrap();
        for (name, same) in [
            ("tsd.storage.fix_duplicates", ["yes", "true"]),
            ("tsd.core.timezone", ["", "UTC"]),
            ("tsd.rollups.config", ["", "unused while rollups are off"]),
            ("tsd.core.histograms.config", [r#"{"a":{"c":3,"d":2},"b":1}"#, file]),
        ] {
            let [one, other] = same.map(|value| {
                let mut config = Config::default();
                config.set_flag("test", name, value);
                let all = alike(&config).unwrap();
                all.into_iter().find(|(found, _)| *found == name).unwrap()
            });
            assert_eq!(one, other);
        }
    }

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
        assert_eq!(default.slot_tags, ["host", "instance", "pod"]);
        assert_eq!(of(SLOT_TAGS, "pod ,host").unwrap().slot_tags, ["pod", "host"]);
        assert_eq!(of(SLOT_TAGS, "").unwrap().slot_tags, <[&str; 0]>::default());
        assert!(!of("tsd.cluster.reads", "stored").unwrap().reads_held);
        let advertised = of("tsd.cluster.advertise", "tsd1:9").unwrap().advertise;
        assert_eq!(advertised.as_deref(), Some("tsd1:9"));
        assert_eq!(default.tls, None);
        for (key, bad) in [
            ("tsd.cluster.tls.cert", "node.pem"),
            ("tsd.cluster.bind", "10.0.0.1"),
            (SLOT_TAGS, "host,,pod"),
            (SLOT_TAGS, "host, a b"),
            (SLOT_TAGS, "host, host"),
            ("tsd.cluster.bind", "10.0.0.1:x"),
            ("tsd.cluster.advertise", "http://tsd1"),
        ] {
            assert!(of(key, bad).unwrap_err().to_string().contains("expected"), "{bad}");
        }
    }
}
