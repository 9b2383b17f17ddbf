//! Kinds of write errors, as `rpc.errors` counts them.

/// The `type` tag of the metric `rpc.errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutErrorKind {
    /// Storage failed or was overloaded.
    Storage,
    /// Time or value is not a number.
    InvalidValue,
    /// Any other error of the point itself.
    IllegalArgument,
    /// A name without a UID.
    UnknownMetric,
}

impl PutErrorKind {
    /// Every kind, in the order of `stats`.
    pub const ALL: [Self; 4] =
        [Self::Storage, Self::InvalidValue, Self::IllegalArgument, Self::UnknownMetric];

    /// Returns the value of the tag.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Storage => "hbase_errors",
            Self::InvalidValue => "invalid_values",
            Self::IllegalArgument => "illegal_arguments",
            Self::UnknownMetric => "unknown_metrics",
        }
    }
}
