//! The declaration of metrics as a table, and the metrics of this crate.

use metrics::Label;

/// Counts the reads of store files that succeeded when they were repeated.
pub const RECOVERED_READS: &str = "tsd_storage_recovered_reads_total";

/// Declares metrics, one row each: a struct with handles of those that code updates, and the help texts of these and
/// of the `computed` ones, which have no handle. A table of only computed metrics is a function that registers their
/// help texts.
///
/// The struct gets `with_labels`, which registers the handles, and `describe`, which registers the help texts. An
/// update by a handle is an atomic operation without a lookup. All sections may be left out, but keep their order:
///
/// ```text
/// counters            field: "name", "text";
/// counters as Type    the same, with handles of a type that is made from a counter
/// counters by label   "name" by "label", "text" => Type { field: "value", other: "value" }
/// counters by value   field: "name" by "label" in [values], "text";       the handles as a `Vec`, in this order
/// gauges, histograms  field: "name", Unit, "text";
/// histograms by value field: "name" by "label" in [values], Unit, "text";
/// others              field: Type = value;                                fields that are no metrics
/// ```
#[macro_export]
macro_rules! metrics_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $metrics:ident {
            $(counters { $($counter:ident: $counter_name:literal, $counter_text:literal;)* })?
            $(counters as $as:ty { $($as_counter:ident: $as_name:literal, $as_text:literal;)* })?
            $(counters by label { $(
                $label_name:literal by $label:literal, $label_text:literal
                    => $label_type:ty { $($label_counter:ident: $label_value:literal),* $(,)? }
            )* })?
            $(counters by value { $(
                $values_counter:ident: $values_name:literal by $values_label:literal in $values:expr,
                    $values_text:literal;
            )* })?
            $(gauges { $($gauge:ident: $gauge_name:literal, $gauge_unit:ident, $gauge_text:literal;)* })?
            $(histograms { $($histogram:ident: $histogram_name:literal, $unit:ident, $text:literal;)* })?
            $(histograms by value { $(
                $spread:ident: $spread_name:literal by $spread_label:literal in $spread_values:expr,
                    $spread_unit:ident, $spread_text:literal;
            )* })?
            $(others { $($other:ident: $other_type:ty = $other_value:expr;)* })?
        }
        $(computed $computed:tt)?
    ) => {
        $(#[$meta])*
        $vis struct $metrics {
            $($($vis $counter: ::metrics::Counter,)*)?
            $($($vis $as_counter: $as,)*)?
            $($($($vis $label_counter: $label_type,)*)*)?
            $($($vis $values_counter: ::std::vec::Vec<::metrics::Counter>,)*)?
            $($($vis $gauge: ::metrics::Gauge,)*)?
            $($($vis $histogram: ::metrics::Histogram,)*)?
            $($($vis $spread: ::std::vec::Vec<::metrics::Histogram>,)*)?
            $($($vis $other: $other_type,)*)?
        }

        impl $metrics {
            /// Registers the handles.
            $vis fn with_labels<const N: usize>(labels: &[(&'static str, String); N]) -> Self {
                Self {
                    $($($counter: ::metrics::counter!($counter_name, labels),)*)?
                    $($($as_counter: ::metrics::counter!($as_name, labels).into(),)*)?
                    $($($($label_counter: ::metrics::counter!(
                        $label_name, $crate::labels_with(labels, $label, $label_value)
                    ).into(),)*)*)?
                    $($($values_counter: $values.into_iter().map(|value| ::metrics::counter!(
                        $values_name, $crate::labels_with(labels, $values_label, value)
                    )).collect(),)*)?
                    $($($gauge: ::metrics::gauge!($gauge_name, labels),)*)?
                    $($($histogram: ::metrics::histogram!($histogram_name, labels),)*)?
                    $($($spread: $spread_values.into_iter().map(|value| ::metrics::histogram!(
                        $spread_name, $crate::labels_with(labels, $spread_label, value)
                    )).collect(),)*)?
                    $($($other: $other_value,)*)?
                }
            }

            /// Registers the help texts. Idempotent.
            $vis fn describe() {
                $($(::metrics::describe_counter!($counter_name, $counter_text);)*)?
                $($(::metrics::describe_counter!($as_name, $as_text);)*)?
                $($(::metrics::describe_counter!($label_name, $label_text);)*)?
                $($(::metrics::describe_counter!($values_name, $values_text);)*)?
                $($(::metrics::describe_gauge!($gauge_name, ::metrics::Unit::$gauge_unit, $gauge_text);)*)?
                $($(::metrics::describe_histogram!($histogram_name, ::metrics::Unit::$unit, $text);)*)?
                $($(::metrics::describe_histogram!(
                    $spread_name, ::metrics::Unit::$spread_unit, $spread_text
                );)*)?
                $(
                    $crate::metrics_table! { fn describe_computed() $computed }
                    describe_computed();
                )?
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis fn $describe:ident() {
            $(counters { $($counter:expr, $counter_text:literal;)* })?
            $(gauges { $($gauge:expr, $gauge_unit:ident, $gauge_text:literal;)* })?
            $(histograms { $($histogram:expr, $unit:ident, $text:literal;)* })?
        }
    ) => {
        $(#[$meta])*
        $vis fn $describe() {
            $($(::metrics::describe_counter!($counter, $counter_text);)*)?
            $($(::metrics::describe_gauge!($gauge, ::metrics::Unit::$gauge_unit, $gauge_text);)*)?
            $($(::metrics::describe_histogram!($histogram, ::metrics::Unit::$unit, $text);)*)?
        }
    };
}

/// Labels and another one, for [`metrics_table`].
#[doc(hidden)]
#[must_use]
pub fn labels_with(
    labels: &[(&'static str, String)],
    label: &'static str,
    value: &'static str,
) -> Vec<Label> {
    labels.iter().map(Label::from).chain([Label::new(label, value)]).collect()
}

metrics_table! {
    /// Metrics of one operation of a store.
    pub(crate) struct OperationMetrics {
        counters {
            calls: "tsd_storage_calls_total", "Calls of a store, by operation.";
            errors: "tsd_storage_errors_total", "Failed calls of a store, by operation.";
        }
        histograms {
            seconds: "tsd_storage_call_seconds", Seconds, "Latency of the calls of a store, by operation.";
        }
    }
    computed {
        counters {
            RECOVERED_READS,
                "Reads of store files that failed, or returned wrong bytes, and succeeded when they were repeated.";
        }
    }
}

/// Describes every `tsd_storage_*` metric of this crate. Idempotent.
pub fn describe_metrics() {
    OperationMetrics::describe();
}
