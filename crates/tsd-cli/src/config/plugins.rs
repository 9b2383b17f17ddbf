//! Plug-ins that a configuration names.
//!
//! OpenTSDB loads classes. Here each purpose has built-in plug-ins with short names, and the name of an upstream class
//! selects the built-in plug-in with the same function. Like OpenTSDB, the daemon does not start if an enabled plug-in
//! is missing: most plug-ins restrict access, and without them the daemon would be open.

use super::{Config, ConfigError, keys};

/// A plug-in point of OpenTSDB.
struct PluginPoint {
    /// Name of the kind of plug-in.
    what: &'static str,
    /// The key that enables the plug-ins; `None` if naming a plug-in enables it.
    enable: Option<&'static str>,
    /// The key with the names of the plug-ins, separated by commas.
    plugin: &'static str,
    /// The built-in plug-ins.
    built_in: &'static [BuiltIn],
    /// True if the name may be omitted, which selects the first plug-in.
    is_named_by_default: bool,
    /// The alternative if no plug-in is built in.
    instead: &'static str,
}

/// A built-in plug-in.
struct BuiltIn {
    name: &'static str,
    /// The upstream class with the same function.
    class: Option<&'static str>,
}

const fn point(what: &'static str, enable: &'static str, plugin: &'static str) -> PluginPoint {
    PluginPoint {
        what,
        enable: Some(enable),
        plugin,
        built_in: &[],
        is_named_by_default: false,
        instead: "",
    }
}

const fn built_in(name: &'static str) -> BuiltIn {
    BuiltIn { name, class: None }
}

const UID_FILTER: &str = "tsd.uidfilter.enable";

/// White lists of the built-in UID filter.
const WHITE_LISTS: [&str; 3] = [
    "tsd.uidfilter.whitelist.metric_patterns",
    "tsd.uidfilter.whitelist.tagk_patterns",
    "tsd.uidfilter.whitelist.tagv_patterns",
];

static POINTS: [PluginPoint; 10] = [
    PluginPoint {
        built_in: &[
            built_in("file"),
            BuiltIn {
                name: "allow_all",
                class: Some("net.opentsdb.auth.AllowAllAuthenticatingAuthorizer"),
            },
        ],
        ..point(
            "authentication",
            "tsd.core.authentication.enable",
            "tsd.core.authentication.plugin",
        )
    },
    PluginPoint {
        instead: "series are tracked by tsd.core.meta.enable_tsuid_tracking",
        ..point("meta cache", "tsd.core.meta.cache.enable", "tsd.core.meta.cache.plugin")
    },
    PluginPoint {
        built_in: &[built_in("spool")],
        ..point(
            "storage exception handler",
            "tsd.core.storage_exception_handler.enable",
            "tsd.core.storage_exception_handler.plugin",
        )
    },
    PluginPoint {
        built_in: &[built_in("file"), built_in("tcp"), built_in("http")],
        ..point("real-time publisher", "tsd.rtpublisher.enable", "tsd.rtpublisher.plugin")
    },
    PluginPoint {
        built_in: &[built_in("scan")],
        is_named_by_default: true,
        ..point("search", "tsd.search.enable", "tsd.search.plugin")
    },
    PluginPoint {
        instead: "a supervisor can start other programs before the daemon, and /api/health/ready tells when it \
                  serves",
        ..point("start-up", "tsd.startup.enable", "tsd.startup.plugin")
    },
    PluginPoint {
        built_in: &[built_in("rules")],
        ..point("time series filter", "tsd.timeseriesfilter.enable", "tsd.timeseriesfilter.plugin")
    },
    PluginPoint {
        built_in: &[BuiltIn {
            name: "whitelist",
            class: Some("net.opentsdb.uid.UniqueIdWhitelistFilter"),
        }],
        is_named_by_default: true,
        ..point("UID filter", UID_FILTER, "tsd.uidfilter.plugin")
    },
    PluginPoint {
        enable: None,
        instead: "a proxy can serve further paths",
        ..point("HTTP RPC", "", "tsd.http.rpc.plugins")
    },
    PluginPoint {
        enable: None,
        instead: "a separate program can translate other protocols to telnet lines",
        ..point("RPC", "", "tsd.rpc.plugins")
    },
];

/// Fails if the configuration names a plug-in that is not built in, or a UID filter without patterns.
///
/// If a plug-in point is explicitly disabled, a name has no effect and is not an error.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    for point in &POINTS {
        point.check(config)?;
    }
    for key in config.values.keys().filter(|key| keys::find(key).is_none()) {
        let Some(owner) = key.strip_suffix(".plugin").or_else(|| key.strip_suffix(".plugins"))
        else {
            continue;
        };
        let is_named = config.non_empty(key).is_some();
        if key.starts_with("tsd.") && is_named && !is_disabled(config, &format!("{owner}.enable")) {
            let expected = "there are no plug-ins of this kind; remove the key";
            return Err(config.bad_value(key, expected));
        }
    }
    check_white_lists(config)
}

/// The short name of the built-in plug-in that is enabled and named by a key; `None` if the point is
/// disabled. [`check`] has accepted the configuration.
pub(super) fn selected(config: &Config, plugin: &str) -> Option<&'static str> {
    let point = POINTS.iter().find(|point| point.plugin == plugin)?;
    if !point.enable.is_some_and(|enable| config.bool(enable)) {
        return None;
    }
    let name = config.text(plugin).unwrap_or_default();
    let named = point.built_in.iter().find(|built_in| built_in.is_called(name));
    named.or_else(|| point.built_in.first()).map(|built_in| built_in.name)
}

impl BuiltIn {
    fn is_called(&self, name: &str) -> bool {
        name == self.name || self.class == Some(name)
    }

    fn render(&self) -> String {
        match self.class {
            Some(class) => format!("{} ({class})", self.name),
            None => self.name.to_owned(),
        }
    }
}

impl PluginPoint {
    fn check(&self, config: &Config) -> Result<(), ConfigError> {
        let names = config.text(self.plugin).unwrap_or_default();
        let mut names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let first = names.next();
        if let Some(enable) = self.enable
            && config.bool(enable)
        {
            if self.built_in.is_empty() {
                return Err(config.bad_value(enable, format!("{}; expected false", self.choices())));
            }
            if first.is_none() && !self.is_named_by_default {
                let expected = format!("expected also {} = NAME: {}", self.plugin, self.choices());
                return Err(config.bad_value(enable, expected));
            }
        }
        let Some(first) = first else { return Ok(()) };
        if self.enable.is_some_and(|key| is_disabled(config, key)) {
            return Ok(());
        }
        let is_built_in = self.built_in.iter().any(|built_in| built_in.is_called(first));
        if !is_built_in || names.next().is_some() {
            let switch = self.enable.map(|key| format!(", or set {key} = false"));
            let advice = if self.built_in.is_empty() { "; leave the key empty" } else { "" };
            let expected = format!("{}{advice}{}", self.choices(), switch.unwrap_or_default());
            return Err(config.bad_value(self.plugin, expected));
        }
        self.enable.map_or(Ok(()), |enable| must_decide(config, self.plugin, enable))
    }

    /// The built-in plug-ins, as a sentence.
    fn choices(&self) -> String {
        let what = self.what;
        let known: Vec<String> = self.built_in.iter().map(BuiltIn::render).collect();
        match (&known[..], self.instead) {
            ([], "") => format!("no {what} plug-in is built in"),
            ([], instead) => format!("no {what} plug-in is built in ({instead})"),
            ([only], _) => format!("the built-in {what} plug-in is {only}"),
            (known, _) => format!("the built-in {what} plug-ins are {}", known.join(", ")),
        }
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
        Some(key) => must_decide(config, key, UID_FILTER),
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

/// Fails if `key` configures a plug-in but `enable` is not set.
fn must_decide(config: &Config, key: &str, enable: &str) -> Result<(), ConfigError> {
    if config.is_set(enable) {
        return Ok(());
    }
    let expected = format!("expected also {enable} = true, or false to disable it");
    Err(config.bad_value(key, expected))
}

/// True if a switch is explicitly set to false.
fn is_disabled(config: &Config, key: &str) -> bool {
    config.is_set(key) && !config.bool(key)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::{AuthenticationMethod, Settings};

    #[test]
    fn plugins_that_are_not_built_in_stop_the_start() {
        for point in &POINTS {
            if let Some(enable) = point.enable {
                for value in ["true", "1", "YES"] {
                    if !point.built_in.is_empty() {
                        continue;
                    }
                    let error = Settings::with(&[(enable, value)]).unwrap_err();
                    assert!(
                        error.starts_with(&format!("{enable} = {value:?} (test): no ")),
                        "{error}"
                    );
                    assert!(error.ends_with("; expected false"), "{error}");
                }
                let disabled = [(point.plugin, "a.B"), (enable, "false")];
                assert!(Settings::with(&disabled).is_ok(), "{}", point.plugin);
                let error = Settings::with(&[(point.plugin, "a.B"), (enable, "true")]).unwrap_err();
                for known in point.built_in {
                    assert!(error.contains(known.name), "{error}");
                    assert!(known.class.is_none_or(|class| error.contains(class)), "{error}");
                }
            }
            let error = Settings::with(&[(point.plugin, "a.B")]).unwrap_err();
            assert!(error.starts_with(&format!("{} = \"a.B\" (test): ", point.plugin)), "{error}");
            assert!(Settings::with(&[(point.plugin, " ")]).is_ok());
        }
    }

    #[test]
    fn searches_need_no_plugin() {
        assert!(Settings::with(&[]).unwrap().server.search_enabled);
        assert!(Settings::with(&[("tsd.search.enable", "true")]).unwrap().server.search_enabled);
        let disabled = [("tsd.search.enable", "false"), ("tsd.search.plugin", "a.B")];
        assert!(!Settings::with(&disabled).unwrap().server.search_enabled);
    }

    #[test]
    fn authentication_is_by_a_built_in_plugin() {
        const ENABLE: &str = "tsd.core.authentication.enable";
        const PLUGIN: &str = "tsd.core.authentication.plugin";
        const CLASS: &str = "net.opentsdb.auth.AllowAllAuthenticatingAuthorizer";
        let on = (ENABLE, "true");
        let error = Settings::with(&[on]).unwrap_err();
        assert!(error.contains("expected also tsd.core.authentication.plugin = NAME"), "{error}");
        assert!(error.contains("file, allow_all"), "{error}");
        let method =
            |name| Settings::with(&[on, (PLUGIN, name)]).unwrap().authentication.unwrap().method;
        assert_eq!(method("allow_all"), AuthenticationMethod::AllowAll);
        assert_eq!(method(CLASS), AuthenticationMethod::AllowAll);
        let error = Settings::with(&[on, (PLUGIN, "file")]).unwrap_err();
        assert!(error.starts_with("tsd.core.authentication.users_file"), "{error}");
        let file = ("tsd.core.authentication.users_file", "/etc/users");
        let settings =
            Settings::with(&[on, (PLUGIN, "file"), file]).unwrap().authentication.unwrap();
        assert_eq!(settings.method, AuthenticationMethod::UsersFile("/etc/users".into(), None));
        assert!(!settings.per_connection);
        assert!(Settings::with(&[(PLUGIN, "file"), file]).unwrap_err().contains("expected also"));
        assert!(Settings::with(&[on, (PLUGIN, "file,allow_all"), file]).is_err());
        assert!(
            Settings::with(&[
                on,
                (PLUGIN, "file"),
                file,
                ("tsd.core.authentication.open_paths", "/x")
            ])
            .unwrap_err()
            .contains("cannot be an open path")
        );
    }

    #[test]
    fn signed_tokens_need_issuer_and_audience() {
        const KEYS: &str = "tsd.core.authentication.jwt.keys_file";
        const ISSUER: &str = "tsd.core.authentication.jwt.issuer";
        const AUDIENCE: &str = "tsd.core.authentication.jwt.audience";
        let users = [
            ("tsd.core.authentication.enable", "true"),
            ("tsd.core.authentication.plugin", "file"),
            ("tsd.core.authentication.users_file", "/etc/users"),
        ];
        let with = |more: &[(&'static str, &'static str)]| {
            let settings = Settings::with(&[&users[..], more].concat());
            settings.map(|settings| settings.authentication.unwrap().method)
        };
        let error = with(&[(ISSUER, "https://a")]).unwrap_err();
        assert!(error.contains("expected also tsd.core.authentication.jwt.keys_file"), "{error}");
        let error = with(&[(KEYS, "/etc/keys"), (AUDIENCE, "tsdb")]).unwrap_err();
        assert!(error.starts_with(ISSUER), "{error}");
        let error = with(&[(KEYS, "/etc/keys"), (ISSUER, "https://a")]).unwrap_err();
        assert!(error.starts_with(AUDIENCE), "{error}");
        let method = with(&[(KEYS, "/etc/keys"), (ISSUER, "https://a"), (AUDIENCE, "tsdb")]);
        let Ok(AuthenticationMethod::UsersFile(_, Some(tokens))) = method else { panic!() };
        assert_eq!(tokens.keys_file, std::path::Path::new("/etc/keys"));
        assert_eq!((&tokens.rules.user_claim[..], &tokens.rules.roles_claim[..]), ("sub", "roles"));
    }

    #[test]
    fn every_plugin_key_has_its_point() {
        for key in keys::KEYS.iter().filter(|key| {
            key.name.starts_with("tsd.")
                && (key.name.ends_with(".plugin") || key.name.ends_with(".plugins"))
        }) {
            assert!(POINTS.iter().any(|point| point.plugin == key.name), "{}", key.name);
        }
        let error = Settings::with(&[("tsd.my.plugin", "a.B")]).unwrap_err();
        assert!(error.starts_with("tsd.my.plugin = \"a.B\" (test): there are no"), "{error}");
        assert!(Settings::with(&[("tsd.my.plugin", "a.B"), ("tsd.my.enable", "false")]).is_ok());
    }

    #[test]
    fn a_uid_filter_without_patterns_stops_the_start() {
        let (on, patterns) = ((UID_FILTER, "true"), (WHITE_LISTS[1], "^host$"));
        for empty in ["", " ", ",", ",,"] {
            let error = Settings::with(&[on, (WHITE_LISTS[0], empty)]).unwrap_err();
            assert!(error.starts_with("tsd.uidfilter.enable = \"true\""), "{error}");
            assert!(WHITE_LISTS.iter().all(|key| error.contains(key)), "{error}");
        }
        assert!(Settings::with(&[on, patterns]).unwrap().engine.uids.filter.is_some());
        let error = Settings::with(&[patterns]).unwrap_err();
        assert!(error.contains("expected also tsd.uidfilter.enable = true"), "{error}");
        assert!(
            Settings::with(&[patterns, (UID_FILTER, "no")]).unwrap().engine.uids.filter.is_none()
        );
    }

    #[test]
    fn the_built_in_uid_filter_may_be_named() {
        const PLUGIN: &str = "tsd.uidfilter.plugin";
        let name = (PLUGIN, "net.opentsdb.uid.UniqueIdWhitelistFilter");
        let short = (PLUGIN, "whitelist");
        assert!(Settings::with(&[short, (UID_FILTER, "true"), (WHITE_LISTS[0], "sys")]).is_ok());
        assert!(Settings::with(&[name, (UID_FILTER, "true"), (WHITE_LISTS[0], "sys")]).is_ok());
        assert!(
            Settings::with(&[name]).unwrap_err().contains("expected also tsd.uidfilter.enable")
        );
        let error = Settings::with(&[(PLUGIN, "a.B"), (UID_FILTER, "true")]).unwrap_err();
        assert!(error.contains("net.opentsdb.uid.UniqueIdWhitelistFilter"), "{error}");
    }
}
