//! Input of smoothing.

/// Seconds since the begin of the graph, and value.
pub(crate) type Sample = (f64, f64);
