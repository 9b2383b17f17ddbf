//! Paths that HTTP serves without credentials.
//!
//! Orchestrators that probe the health of a daemon, and Prometheus, often have no credentials. The
//! setting lists routes, not texts: `/API/v1/health/x` has the route of `/api/health`.

use crate::route::Route;

/// An entry of the list cannot be open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{entry:?} cannot be an open path: expected a list of {}, separated by commas",
    OpenPaths::CHOICES.map(|(path, _)| path).join(", ")
)]
pub struct OpenPathsError {
    entry: String,
}

/// Routes that need no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPaths(Vec<Route>);

impl OpenPaths {
    /// Routes about the daemon. Their changes need an administrator in any case.
    const CHOICES: [(&str, Route); 11] = [
        ("/api/health", Route::Health),
        ("/metrics", Route::Metrics),
        ("/api/status", Route::Status),
        ("/api/stats", Route::Stats),
        ("/stats", Route::LegacyStats),
        ("/api/version", Route::Version),
        ("/version", Route::LegacyVersion),
        ("/api/aggregators", Route::Aggregators),
        ("/aggregators", Route::LegacyAggregators),
        ("/api/config", Route::Config),
        ("/", Route::Home),
    ];

    /// Parses a list of paths, separated by commas. With an empty text, all paths need credentials.
    pub fn try_new(list: &str) -> Result<Self, OpenPathsError> {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let routes = entries.map(|entry| {
            let known = Self::CHOICES.iter().find(|(path, _)| *path == entry);
            known.map(|(_, route)| *route).ok_or_else(|| OpenPathsError { entry: entry.to_owned() })
        });
        routes.collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if a path of the route needs no credentials. The files of the page are open if `/` is.
    pub(crate) fn contains(&self, route: Route, path: &str) -> bool {
        let is_of_page = route == Route::StaticFile && path.starts_with("/s/page/");
        self.0.contains(&if is_of_page { Route::Home } else { route })
    }
}

impl Default for OpenPaths {
    /// Health and metrics.
    fn default() -> Self {
        Self(vec![Route::Health, Route::Metrics])
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn routes_about_the_daemon_may_be_open() {
        assert_eq!(OpenPaths::try_new("/api/health, /metrics").unwrap(), OpenPaths::default());
        assert!(!OpenPaths::try_new("").unwrap().contains(Route::Health, "/api/health"));
        assert!(OpenPaths::try_new("/").unwrap().contains(Route::Home, "/"));
        for entry in ["/api/query", "/api/put", "/diediedie", "*", "/api", "api/health"] {
            let error = OpenPaths::try_new(entry).unwrap_err().to_string();
            assert!(error.contains("/api/health, /metrics, /api/status"), "{error}");
        }
    }
}
