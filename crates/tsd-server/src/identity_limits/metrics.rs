//! Metrics of identities, for the first of them since the start of the process; the others share one label.

use metrics::Counter;

tsd_engine::metrics_table! {
    /// Metrics of one identity.
    #[derive(Debug)]
    pub(crate) struct IdentityMetrics {
        counters {
            points: "tsd_identity_points_total",
                "Points that an identity sent, stored or not, by identity (a user, or the network of clients without users).";
            new_series: "tsd_identity_new_series_total",
                "New series that the points of an identity added, by identity.";
            queries: "tsd_identity_queries_total",
                "Queries, graphs and searches that an identity began, by identity.";
            telnet_pauses: "tsd_identity_telnet_pauses_total",
                "Pauses of telnet connections that were not read because of `tsd.limits.points_per_second`, by identity.";
        }
        counters by label {
            "tsd_identity_refusals_total" by "limit",
                "Requests and points refused with the limit that their identity reached, by identity and limit (points, new_series, queries)."
                => Counter {
                    refused_points: "points", refused_series: "new_series", refused_queries: "queries",
                }
        }
        gauges {
            running_queries: "tsd_identity_running_queries", Count,
                "Queries, graphs and searches of an identity in progress, by identity.";
        }
    }
    computed {
        gauges {
            "tsd_identity_tracked", Count, "Identities whose use is remembered for `tsd.limits.*`.";
        }
    }
}
