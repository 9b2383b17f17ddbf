//! Settings of the plug-ins that get points: the real-time publisher and the storage exception handler.

use tsd_engine::OnFull;
use tsd_server::{PublisherConfig, SpoolConfig};

use crate::config::{Config, ConfigError, plugins};

const PUBLISHER: &str = "tsd.rtpublisher";
const HANDLER: &str = "tsd.core.storage_exception_handler";

/// The enabled plug-ins.
#[derive(Clone, Debug, Default)]
pub struct PointPluginSettings {
    /// The real-time publisher.
    pub publisher: Option<PluginSettings<PublisherConfig>>,
    /// The storage exception handler.
    pub spool: Option<PluginSettings<SpoolConfig>>,
}

/// A plug-in and its queue.
#[derive(Clone, Debug)]
pub struct PluginSettings<C> {
    /// The plug-in.
    pub config: C,
    /// Bound of its queue, bytes.
    pub queue_bytes: usize,
    /// Reaction to a full queue.
    pub on_full: OnFull,
}

impl PointPluginSettings {
    /// Maximum bytes of all queues.
    pub(super) fn queue_bytes(&self) -> u64 {
        let publisher = self.publisher.as_ref().map_or(0, PluginSettings::most_bytes);
        publisher + self.spool.as_ref().map_or(0, PluginSettings::most_bytes)
    }
}

impl<C> PluginSettings<C> {
    fn new(config: &Config, owner: &str, plugin: C) -> Self {
        let holds = config.text(&format!("{owner}.on_full")) == Some("hold");
        Self {
            config: plugin,
            queue_bytes: config.int(&format!("{owner}.queue_size")),
            on_full: if holds { OnFull::Hold } else { OnFull::Drop },
        }
    }

    /// Maximum bytes of the queue. A queue that holds senders also takes the points that were being written when it
    /// became full.
    const fn most_bytes(&self) -> u64 {
        let queue = self.queue_bytes as u64;
        match self.on_full {
            OnFull::Drop => queue,
            OnFull::Hold => queue.saturating_mul(2),
        }
    }
}

pub(super) fn point_plugins(config: &Config) -> Result<PointPluginSettings, ConfigError> {
    Ok(PointPluginSettings { publisher: publisher(config)?, spool: spool(config)? })
}

fn publisher(config: &Config) -> Result<Option<PluginSettings<PublisherConfig>>, ConfigError> {
    const FILE: &str = "tsd.rtpublisher.file";
    const ADDRESS: &str = "tsd.rtpublisher.address";
    const URL: &str = "tsd.rtpublisher.url";
    let Some(name) = plugins::selected(config, "tsd.rtpublisher.plugin") else { return Ok(None) };
    let publisher = match name {
        "file" => PublisherConfig::File {
            path: config.required(FILE, "expected the path of a file")?.into(),
            max_bytes: config.int("tsd.rtpublisher.file.max_bytes"),
            keep: config.int("tsd.rtpublisher.file.keep"),
        },
        "tcp" => {
            let address = config.required(ADDRESS, "expected HOST:PORT")?;
            let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                return Err(config.bad_value(ADDRESS, "expected HOST:PORT"));
            }
            PublisherConfig::Tcp(address)
        }
        _ => {
            let url = config.string(URL).parse::<tsd_server::PublisherUrl>();
            PublisherConfig::Http {
                url: url.map_err(|error| config.bad_value(URL, error))?,
                authorities: config.non_empty("tsd.rtpublisher.ca").map(Into::into),
            }
        }
    };
    Ok(Some(PluginSettings::new(config, PUBLISHER, publisher)))
}

fn spool(config: &Config) -> Result<Option<PluginSettings<SpoolConfig>>, ConfigError> {
    const DIRECTORY: &str = "tsd.core.storage_exception_handler.directory";
    if plugins::selected(config, "tsd.core.storage_exception_handler.plugin").is_none() {
        return Ok(None);
    }
    let spool = SpoolConfig {
        directory: config.required(DIRECTORY, "expected the path of a directory")?.into(),
        max_bytes: config.int("tsd.core.storage_exception_handler.max_bytes"),
    };
    Ok(Some(PluginSettings::new(config, HANDLER, spool)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use crate::config::Settings;

    #[test]
    fn each_publisher_needs_its_destination() {
        for (plugin, key, wrong, right) in [
            ("file", "tsd.rtpublisher.file", "", "/tmp/points"),
            ("tcp", "tsd.rtpublisher.address", "host", "host:1"),
            ("tcp", "tsd.rtpublisher.address", "host:0", "[::1]:65535"),
            ("http", "tsd.rtpublisher.url", "ftp://host/", "http://host/"),
            ("http", "tsd.rtpublisher.url", "https://", "https://host/"),
        ] {
            let with = |destination| {
                Settings::with(&[
                    ("tsd.rtpublisher.enable", "true"),
                    ("tsd.rtpublisher.plugin", plugin),
                    (key, destination),
                ])
            };
            assert!(with(wrong).unwrap_err().starts_with(key), "{plugin} {wrong}");
            assert!(with(right).unwrap().point_plugins.publisher.is_some(), "{plugin} {right}");
        }
    }

    #[test]
    fn queues_are_a_part_of_the_memory_limit() {
        let settings = Settings::with(&[
            ("tsd.core.storage_exception_handler.enable", "true"),
            ("tsd.core.storage_exception_handler.plugin", "spool"),
            ("tsd.core.storage_exception_handler.directory", "/tmp/spool"),
            ("tsd.core.storage_exception_handler.on_full", "hold"),
        ])
        .unwrap();
        let part = |(name, bytes): &(&str, u64)| (*name == "plugin_queues").then_some(*bytes);
        assert_eq!(settings.memory.budget.fixed().iter().find_map(part), Some(32 << 20));
        assert!(Settings::with(&[]).unwrap().point_plugins.spool.is_none());
    }
}
