//! Parses request paths into routes.
//!
//! Only the first components of a path count, as in OpenTSDB: `/api/v1/PUT/anything` is `/api/put`.

use tsd_protocol::ApiError;

use super::error::HttpError;
use crate::ServerConfig;

/// Highest API version.
const MAX_VERSION: u32 = 1;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/api/put`.
    Put,
    /// `/api/rollup`.
    Rollup,
    /// `/api/histogram`.
    Histogram,
    /// `/api/annotation`.
    Annotation,
    /// `/api/annotations`.
    Annotations,
    /// `/api/tree/…`.
    Tree,
    /// `/api/query`.
    Query,
    /// `/api/search/…`.
    Search,
    /// `/api/suggest`.
    Suggest,
    /// `/api/uid/…`.
    Uid,
    /// `/api/stats`.
    Stats,
    /// `/api/status`.
    Status,
    /// `/api/health/…`, which OpenTSDB does not have.
    Health,
    /// `/api/config`.
    Config,
    /// `/api/version`.
    Version,
    /// `/api/aggregators`.
    Aggregators,
    /// `/api/dropcaches`.
    DropCaches,
    /// `/`.
    Home,
    /// `/metrics`, which OpenTSDB does not have.
    Metrics,
    /// `/suggest`.
    LegacySuggest,
    /// `/stats`.
    LegacyStats,
    /// `/version`.
    LegacyVersion,
    /// `/aggregators`.
    LegacyAggregators,
    /// `/q`.
    Graph,
    /// `/diediedie`.
    DieDieDie,
    /// `/api/quarantine`, which OpenTSDB does not have.
    Quarantine,
    /// `/api/verify`, which OpenTSDB does not have.
    Verify,
    /// `/api/snapshot`, which OpenTSDB does not have.
    Snapshot,
    /// `/api/cluster`, which OpenTSDB does not have.
    Cluster,
    /// `/api/serializers`.
    Serializers,
    /// `/logs`.
    Logs,
    /// `/s/…`.
    StaticFile,
    /// `/favicon.ico`.
    Favicon,
    /// Anything else.
    Unknown,
}

impl Route {
    /// Every route with its label, in the order of the discriminants.
    pub(crate) const ALL: [(Self, &'static str); 34] = [
        (Self::Put, "api/put"),
        (Self::Rollup, "api/rollup"),
        (Self::Histogram, "api/histogram"),
        (Self::Annotation, "api/annotation"),
        (Self::Annotations, "api/annotations"),
        (Self::Tree, "api/tree"),
        (Self::Query, "api/query"),
        (Self::Search, "api/search"),
        (Self::Suggest, "api/suggest"),
        (Self::Uid, "api/uid"),
        (Self::Stats, "api/stats"),
        (Self::Status, "api/status"),
        (Self::Health, "api/health"),
        (Self::Config, "api/config"),
        (Self::Version, "api/version"),
        (Self::Aggregators, "api/aggregators"),
        (Self::DropCaches, "api/dropcaches"),
        (Self::Home, "home"),
        (Self::Metrics, "metrics"),
        (Self::LegacySuggest, "suggest"),
        (Self::LegacyStats, "stats"),
        (Self::LegacyVersion, "version"),
        (Self::LegacyAggregators, "aggregators"),
        (Self::Graph, "q"),
        (Self::DieDieDie, "diediedie"),
        (Self::Quarantine, "api/quarantine"),
        (Self::Verify, "api/verify"),
        (Self::Snapshot, "api/snapshot"),
        (Self::Cluster, "api/cluster"),
        (Self::Serializers, "api/serializers"),
        (Self::Logs, "logs"),
        (Self::StaticFile, "s"),
        (Self::Favicon, "favicon.ico"),
        (Self::Unknown, "unknown"),
    ];

    fn from_label(label: &str) -> Self {
        let found = Self::ALL.iter().find(|(_, known)| *known == label);
        found.map_or(Self::Unknown, |(route, _)| *route)
    }

    /// Returns true if a daemon with this configuration serves the route.
    fn is_served(self, config: &ServerConfig) -> bool {
        let (reads, writes) = (config.mode.reads(), config.mode.writes());
        match self {
            Self::Put
            | Self::Rollup
            | Self::Histogram
            | Self::Annotation
            | Self::Annotations
            | Self::Tree => config.api_enabled && writes,
            Self::Query | Self::Search | Self::Suggest => config.api_enabled && reads,
            Self::Uid
            | Self::Stats
            | Self::Status
            | Self::Config
            | Self::Version
            | Self::Aggregators
            | Self::DropCaches
            | Self::Quarantine
            | Self::Verify
            | Self::Snapshot
            | Self::Cluster
            | Self::Serializers => config.api_enabled,
            Self::Home | Self::LegacySuggest | Self::StaticFile | Self::Favicon | Self::Graph => {
                config.ui_enabled && reads
            }
            Self::LegacyStats | Self::LegacyVersion | Self::LegacyAggregators | Self::Logs => {
                config.ui_enabled
            }
            Self::DieDieDie => config.ui_enabled && !config.no_diediedie,
            Self::Metrics => config.metrics.is_some(),
            // Probes of an orchestrator, whatever clients may use.
            Self::Health => true,
            Self::Unknown => false,
        }
    }
}

/// A parsed request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestPath<'p> {
    /// The route.
    pub(crate) route: Route,
    /// API version; 0 outside the API and if requested.
    pub(crate) version: u32,
    /// The component after the route; empty if there is none.
    pub(crate) sub_path: &'p str,
}

impl<'p> RequestPath<'p> {
    /// Parses a path. A route that this daemon does not serve is `Unknown`.
    pub(crate) fn parse(path: &'p str, config: &ServerConfig) -> Result<Self, HttpError> {
        let mut parts = path.strip_prefix('/').unwrap_or(path).split('/');
        let first = parts.next().unwrap_or_default();
        let mut version = 0;
        let route = if first.eq_ignore_ascii_case("api") {
            version = MAX_VERSION;
            let mut next = parts.next().unwrap_or_default();
            if let Some(request) = requested_version(next) {
                version = request?;
                next = parts.next().unwrap_or_default();
            }
            Route::from_label(&format!("api/{}", next.to_ascii_lowercase()))
        } else {
            match first.to_ascii_lowercase().as_str() {
                "" => Route::Home,
                // The label of the home page is no path.
                "home" => Route::Unknown,
                word => Route::from_label(word),
            }
        };
        let route = if route.is_served(config) { route } else { Route::Unknown };
        Ok(Self { route, version, sub_path: parts.next().unwrap_or_default() })
    }

    /// Returns true if the first component is `api`. For errors before the path is parsed.
    pub(crate) fn is_api(path: &str) -> bool {
        path.split('/').nth(1).is_some_and(|first| first.eq_ignore_ascii_case("api"))
    }
}

/// Parses a version component; `None` if it is not one.
fn requested_version(component: &str) -> Option<Result<u32, HttpError>> {
    let digits = component.strip_prefix(['v', 'V'])?;
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(match digits.parse::<u32>() {
        Ok(version) if version > MAX_VERSION => {
            Err(ApiError::version_too_new(version, MAX_VERSION).into())
        }
        Ok(version) => Ok(version),
        Err(_) => Err(ApiError::bad_version().into()),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::ServerMode;

    #[track_caller]
    fn check(path: &str, route: Route, version: u32, sub_path: &str) {
        let parsed = RequestPath::parse(path, &ServerConfig::default()).unwrap();
        assert_eq!(parsed, RequestPath { route, version, sub_path }, "{path}");
    }

    #[test]
    fn only_the_first_components_select_the_route() {
        check("/api/put", Route::Put, 1, "");
        check("/API/v1/Put/x/y", Route::Put, 1, "x");
        check("/api/v0/put", Route::Put, 0, "");
        check("/api/uid/assign", Route::Uid, 1, "assign");
        check("/api/version", Route::Version, 1, "");
        check("/api", Route::Unknown, 1, "");
        check("/api/v1", Route::Unknown, 1, "");
        check("/api/nothing", Route::Unknown, 1, "");
        check("/", Route::Home, 0, "");
        check("/Version", Route::LegacyVersion, 0, "");
        check("/S/a.js", Route::StaticFile, 0, "a.js");
        check("/favicon.ico", Route::Favicon, 0, "");
        check("/q", Route::Graph, 0, "");
        check("/home", Route::Unknown, 0, "");
    }

    #[test]
    fn versions_beyond_the_first_are_refused() {
        let error = |path| RequestPath::parse(path, &ServerConfig::default()).unwrap_err();
        assert_eq!(error("/api/v2/put"), ApiError::version_too_new(2, 1).into());
        assert_eq!(error("/api/v1x/put"), ApiError::bad_version().into());
    }

    #[test]
    fn modes_and_switches_disable_routes() {
        let route = |path, config: &ServerConfig| RequestPath::parse(path, config).unwrap().route;
        let read_only = ServerConfig { mode: ServerMode::ReadOnly, ..ServerConfig::default() };
        assert_eq!(route("/api/put", &read_only), Route::Unknown);
        assert_eq!(route("/api/tree", &read_only), Route::Unknown);
        assert_eq!(route("/api/query", &read_only), Route::Query);
        let write_only = ServerConfig { mode: ServerMode::WriteOnly, ..ServerConfig::default() };
        assert_eq!(route("/api/put", &write_only), Route::Put);
        for path in [
            "/api/query",
            "/api/search",
            "/api/suggest",
            "/suggest",
            "/q",
            "/",
            "/s/a",
            "/favicon.ico",
        ] {
            assert_eq!(route(path, &write_only), Route::Unknown, "{path}");
        }
        let no_api = ServerConfig { api_enabled: false, ..ServerConfig::default() };
        assert_eq!(route("/api/version", &no_api), Route::Unknown);
        assert_eq!(route("/version", &no_api), Route::LegacyVersion);
        let no_ui = ServerConfig { ui_enabled: false, ..ServerConfig::default() };
        assert_eq!(route("/version", &no_ui), Route::Unknown);
        let no_die = ServerConfig { no_diediedie: true, ..ServerConfig::default() };
        assert_eq!(route("/diediedie", &no_die), Route::Unknown);
    }

    #[test]
    fn routes_are_numbered_as_listed() {
        for (at, (route, _)) in Route::ALL.iter().enumerate() {
            assert_eq!(*route as usize, at);
        }
    }
}
