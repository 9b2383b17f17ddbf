//! Plug-ins that a configuration names.
//!
//! OpenTSDB does not start without a plug-in that is enabled. Neither does this daemon: most of them
//! restrict who may do what, and a daemon without them would be open.

use super::{Config, ConfigError, is_true, keys};

/// A plug-in point of OpenTSDB.
struct PluginPoint {
    /// What its plug-ins are called.
    what: &'static str,
    /// The key that enables them; without one they are enabled by their names.
    enable: Option<&'static str>,
    /// The key with their class names, separated by commas.
    plugin: &'static str,
    /// Class names of those that are built in.
    built_in: &'static [&'static str],
    /// What it enables is built in without a class name.
    works_without: bool,
}

const fn point(what: &'static str, enable: &'static str, plugin: &'static str) -> PluginPoint {
    PluginPoint { what, enable: Some(enable), plugin, built_in: &[], works_without: false }
}

const UID_FILTER: &str = "tsd.uidfilter.enable";

/// White lists of the built-in UID filter.
const WHITE_LISTS: [&str; 3] = [
    "tsd.uidfilter.whitelist.metric_patterns",
    "tsd.uidfilter.whitelist.tagk_patterns",
    "tsd.uidfilter.whitelist.tagv_patterns",
];

static POINTS: [PluginPoint; 10] = [
    point("authentication", "tsd.core.authentication.enable", "tsd.core.authentication.plugin"),
    point("meta cache", "tsd.core.meta.cache.enable", "tsd.core.meta.cache.plugin"),
    point(
        "storage exception handler",
        "tsd.core.storage_exception_handler.enable",
        "tsd.core.storage_exception_handler.plugin",
    ),
    point("real-time publisher", "tsd.rtpublisher.enable", "tsd.rtpublisher.plugin"),
    PluginPoint {
        works_without: true,
        ..point("search", "tsd.search.enable", "tsd.search.plugin")
    },
    point("start-up", "tsd.startup.enable", "tsd.startup.plugin"),
    point("time series filter", "tsd.timeseriesfilter.enable", "tsd.timeseriesfilter.plugin"),
    PluginPoint {
        built_in: &["net.opentsdb.uid.UniqueIdWhitelistFilter"],
        ..point("UID filter", UID_FILTER, "tsd.uidfilter.plugin")
    },
    PluginPoint { enable: None, ..point("HTTP RPC", "", "tsd.http.rpc.plugins") },
    PluginPoint { enable: None, ..point("RPC", "", "tsd.rpc.plugins") },
];

/// Fails if a plug-in is configured that is not built in, or a UID filter that filters nothing.
///
/// A name has no effect, and is no error, where its plug-in point is explicitly disabled.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    for point in &POINTS {
        point.check(config)?;
    }
    for key in config.values.keys().filter(|key| keys::find(key).is_none()) {
        let Some(owner) = key.strip_suffix(".plugin").or_else(|| key.strip_suffix(".plugins"))
        else {
            continue;
        };
        let is_named = config.text(key).is_some_and(|names| !names.is_empty());
        if key.starts_with("tsd.") && is_named && !is_disabled(config, &format!("{owner}.enable")) {
            let expected = "there are no plug-ins of this kind; remove the key".to_owned();
            return Err(config.bad_value(key, expected));
        }
    }
    check_white_lists(config)
}

impl PluginPoint {
    fn check(&self, config: &Config) -> Result<(), ConfigError> {
        let what = self.what;
        if let Some(enable) = self.enable
            && self.built_in.is_empty()
            && !self.works_without
            && config.bool(enable)
        {
            let expected = format!("no {what} plug-in is built in; expected false");
            return Err(config.bad_value(enable, expected));
        }
        let names = config.text(self.plugin).unwrap_or_default();
        let mut names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() || self.enable.is_some_and(|key| is_disabled(config, key)) {
            return Ok(());
        }
        let switch = self.enable.map(|key| format!(", or set {key} = false")).unwrap_or_default();
        if names.any(|name| !self.built_in.contains(&name)) {
            let choices = match self.built_in {
                [] => format!("no {what} plug-in is built in"),
                built_in => format!("the built-in {what} plug-in is {}", built_in.join(", ")),
            };
            let expected = format!("{choices}; leave the key empty{switch}");
            return Err(config.bad_value(self.plugin, expected));
        }
        must_decide(config, self.plugin)
    }
}

/// Fails if the UID filter is enabled without a pattern, or has patterns and is neither enabled nor
/// disabled.
fn check_white_lists(config: &Config) -> Result<(), ConfigError> {
    let delimiter = config.text("tsd.uidfilter.whitelist.delimiter").unwrap_or_default();
    let has_pattern = |key: &&str| {
        let list = config.text(key).unwrap_or_default();
        if delimiter.is_empty() {
            return !list.is_empty();
        }
        list.split(delimiter).any(|pattern| !pattern.is_empty())
    };
    match WHITE_LISTS.iter().find(|key| has_pattern(key)) {
        Some(key) => must_decide(config, key),
        None if config.bool(UID_FILTER) => {
            let expected = format!(
                "without a pattern the filter allows every name; expected regular expressions in \
                 {}, {} or {}",
                WHITE_LISTS[0], WHITE_LISTS[1], WHITE_LISTS[2]
            );
            Err(config.bad_value(UID_FILTER, expected))
        }
        None => Ok(()),
    }
}

/// Fails if part of the UID filter is configured by `key`, but not whether it is on.
fn must_decide(config: &Config, key: &str) -> Result<(), ConfigError> {
    if config.is_set(UID_FILTER) {
        return Ok(());
    }
    let expected = format!("expected also {UID_FILTER} = true, or false to switch it off");
    Err(config.bad_value(key, expected))
}

/// True if a switch is set to false, not only by default.
fn is_disabled(config: &Config, key: &str) -> bool {
    config.values.get(key).is_some_and(|given| !is_true(&given.value))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::Settings;

    fn load(settings: &[(&str, &str)]) -> Result<Settings, String> {
        let mut config = Config::new();
        for (key, value) in settings {
            config.set_flag("test", key, *value);
        }
        Settings::from_config(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn plugins_that_are_not_built_in_stop_the_start() {
        for point in POINTS.iter().filter(|point| point.built_in.is_empty()) {
            if let Some(enable) = point.enable.filter(|_| !point.works_without) {
                for value in ["true", "1", "YES"] {
                    let error = load(&[(enable, value)]).unwrap_err();
                    assert!(
                        error.starts_with(&format!("{enable} = {value:?} (test): no ")),
                        "{error}"
                    );
                    assert!(error.ends_with("is built in; expected false"), "{error}");
                }
                let disabled = [(point.plugin, "a.B"), (enable, "false")];
                assert!(load(&disabled).is_ok(), "{}", point.plugin);
            }
            let error = load(&[(point.plugin, "a.B")]).unwrap_err();
            assert!(
                error.starts_with(&format!("{} = \"a.B\" (test): no ", point.plugin)),
                "{error}"
            );
            assert!(load(&[(point.plugin, " ")]).is_ok());
        }
    }

    #[test]
    fn searches_need_no_plugin() {
        assert!(load(&[]).unwrap().server.search_enabled);
        assert!(load(&[("tsd.search.enable", "true")]).unwrap().server.search_enabled);
        let disabled = [("tsd.search.enable", "false"), ("tsd.search.plugin", "a.B")];
        assert!(!load(&disabled).unwrap().server.search_enabled);
    }

    #[test]
    fn every_plugin_key_has_its_point() {
        for key in keys::KEYS.iter().filter(|key| {
            key.name.starts_with("tsd.")
                && (key.name.ends_with(".plugin") || key.name.ends_with(".plugins"))
        }) {
            assert!(POINTS.iter().any(|point| point.plugin == key.name), "{}", key.name);
        }
        let error = load(&[("tsd.my.plugin", "a.B")]).unwrap_err();
        assert!(error.starts_with("tsd.my.plugin = \"a.B\" (test): there are no"), "{error}");
        assert!(load(&[("tsd.my.plugin", "a.B"), ("tsd.my.enable", "false")]).is_ok());
    }

    #[test]
    fn a_uid_filter_without_patterns_stops_the_start() {
        let (on, patterns) = ((UID_FILTER, "true"), (WHITE_LISTS[1], "^host$"));
        for empty in ["", " ", ",", ",,"] {
            let error = load(&[on, (WHITE_LISTS[0], empty)]).unwrap_err();
            assert!(error.starts_with("tsd.uidfilter.enable = \"true\""), "{error}");
            assert!(WHITE_LISTS.iter().all(|key| error.contains(key)), "{error}");
        }
        assert!(load(&[on, patterns]).unwrap().engine.uids.filter.is_some());
        let error = load(&[patterns]).unwrap_err();
        assert!(error.contains("expected also tsd.uidfilter.enable = true"), "{error}");
        assert!(load(&[patterns, (UID_FILTER, "no")]).unwrap().engine.uids.filter.is_none());
    }

    #[test]
    fn the_built_in_uid_filter_may_be_named() {
        const PLUGIN: &str = "tsd.uidfilter.plugin";
        let name = (PLUGIN, "net.opentsdb.uid.UniqueIdWhitelistFilter");
        assert!(load(&[name, (UID_FILTER, "true"), (WHITE_LISTS[0], "sys")]).is_ok());
        assert!(load(&[name]).unwrap_err().contains("expected also tsd.uidfilter.enable"));
        let error = load(&[(PLUGIN, "a.B"), (UID_FILTER, "true")]).unwrap_err();
        assert!(error.contains("net.opentsdb.uid.UniqueIdWhitelistFilter"), "{error}");
    }
}
