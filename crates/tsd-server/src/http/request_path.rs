//! Parses request paths into routes, which are listed in `route.rs`.
//!
//! Only the first components of a path count, as in OpenTSDB: `/api/v1/PUT/anything` is `/api/put`.

use tsd_protocol::ApiError;

use super::error::HttpError;
use crate::{ServerConfig, route::Route};

/// Highest API version.
const MAX_VERSION: u32 = 1;

/// A parsed request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestPath<'p> {
    /// The route.
    pub(crate) route: Route,
    /// API version; 0 outside the API, or if the path requests version 0.
    pub(crate) version: u32,
    /// The component after the route; empty if the path ends with the route.
    pub(crate) sub_path: &'p str,
}

impl<'p> RequestPath<'p> {
    /// Parses a path. Routes that this daemon does not serve become `Unknown`.
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
                // The label of the home page is not a path.
                "home" => Route::Unknown,
                word => Route::from_label(word),
            }
        };
        let route = if is_served(route, config) { route } else { Route::Unknown };
        Ok(Self { route, version, sub_path: parts.next().unwrap_or_default() })
    }

    /// Returns true if the first component is `api`. For errors before the path is parsed.
    pub(crate) fn is_api(path: &str) -> bool {
        path.split('/').nth(1).is_some_and(|first| first.eq_ignore_ascii_case("api"))
    }
}

/// Parses a version component; `None` if the component is not a version.
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

/// Returns true if a daemon with this configuration serves the route.
fn is_served(route: Route, config: &ServerConfig) -> bool {
    let (reads, writes) = (config.mode.reads(), config.mode.writes());
    match route {
        Route::Put
        | Route::Rollup
        | Route::Histogram
        | Route::Annotation
        | Route::Annotations
        | Route::Tree => config.api_enabled && writes,
        Route::Query | Route::Search | Route::Suggest => config.api_enabled && reads,
        Route::Uid
        | Route::Stats
        | Route::Status
        | Route::Config
        | Route::Version
        | Route::Aggregators
        | Route::DropCaches
        | Route::Quarantine
        | Route::Verify
        | Route::Snapshot
        | Route::Cluster
        | Route::Serializers => config.api_enabled,
        Route::Home | Route::LegacySuggest | Route::StaticFile | Route::Favicon | Route::Graph => {
            config.ui_enabled && reads
        }
        Route::LegacyStats | Route::LegacyVersion | Route::LegacyAggregators | Route::Logs => {
            config.ui_enabled
        }
        Route::DieDieDie => config.ui_enabled && !config.no_diediedie,
        Route::Metrics => config.metrics.is_some(),
        // Probes of an orchestrator, independent of the enabled routes.
        Route::Health => true,
        Route::Unknown => false,
    }
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
}
