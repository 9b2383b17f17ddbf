//! The routes and their labels. Which path is of which route is in `http/request_path.rs`.

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

    /// Returns true for routes that monitor the daemon: their small responses must work without memory.
    pub(super) const fn is_operational(self) -> bool {
        matches!(
            self,
            Self::Metrics | Self::Health | Self::Status | Self::Stats | Self::LegacyStats
        )
    }

    pub(super) fn from_label(label: &str) -> Self {
        let found = Self::ALL.iter().find(|(_, known)| *known == label);
        found.map_or(Self::Unknown, |(route, _)| *route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_numbered_as_listed() {
        for (at, (route, _)) in Route::ALL.iter().enumerate() {
            assert_eq!(*route as usize, at);
        }
    }
}
