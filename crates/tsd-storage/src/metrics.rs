//! Help texts of the crate's metrics, and the declaration of those of the stores.

use metrics::{Unit, describe_counter, describe_histogram};

/// Counts the reads of store files that succeeded when they were repeated.
pub const RECOVERED_READS: &str = "tsd_storage_recovered_reads_total";

/// Describes every `tsd_storage_*` metric of this crate. Idempotent.
pub fn describe_metrics() {
    describe_counter!("tsd_storage_calls_total", "Calls of a store, by operation.");
    describe_counter!("tsd_storage_errors_total", "Failed calls of a store, by operation.");
    describe_counter!(
        RECOVERED_READS,
        "Reads of store files that failed, or returned wrong bytes, and succeeded when they were repeated."
    );
    describe_histogram!(
        "tsd_storage_call_seconds",
        Unit::Seconds,
        "Latency of the calls of a store, by operation."
    );
}

/// Declares the metrics of a store, one row each: a struct with handles of those that code updates, and the help
/// texts of these and of those that are computed for each scrape.
///
/// The struct gets `with_labels`, which registers the handles, and `describe`, which registers the help texts. An
/// update by a handle is an atomic operation without a lookup.
#[macro_export]
macro_rules! store_metrics {
    (
        $(#[$meta:meta])*
        $vis:vis struct $metrics:ident {
            counters { $($counter:ident: $counter_name:literal, $counter_text:literal;)* }
            histograms { $($histogram:ident: $histogram_name:literal, $unit:ident, $text:literal;)* }
        }
        computed {
            counters { $($computed_counter:literal, $computed_counter_text:literal;)* }
            gauges { $($gauge:literal, $gauge_unit:ident, $gauge_text:literal;)* }
        }
    ) => {
        $(#[$meta])*
        $vis struct $metrics {
            $($vis $counter: ::metrics::Counter,)*
            $($vis $histogram: ::metrics::Histogram,)*
        }

        impl $metrics {
            /// Registers the handles.
            $vis fn with_labels<const N: usize>(labels: &[(&'static str, String); N]) -> Self {
                Self {
                    $($counter: ::metrics::counter!($counter_name, labels),)*
                    $($histogram: ::metrics::histogram!($histogram_name, labels),)*
                }
            }

            /// Registers the help texts. Idempotent.
            $vis fn describe() {
                $(::metrics::describe_counter!($counter_name, $counter_text);)*
                $(::metrics::describe_histogram!(
                    $histogram_name, ::metrics::Unit::$unit, $text
                );)*
                $(::metrics::describe_counter!($computed_counter, $computed_counter_text);)*
                $(::metrics::describe_gauge!($gauge, ::metrics::Unit::$gauge_unit, $gauge_text);)*
            }
        }
    };
}
