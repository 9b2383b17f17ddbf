//! Kinds of refused points, as `rpc.errors` counts them.

/// The `type` tag of the metric `rpc.errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutErrorKind {
    /// Storage failed or had no room.
    Storage,
    /// Time or value is no number.
    InvalidValue,
    /// Anything else about the point itself.
    IllegalArgument,
    /// A name without a UID.
    UnknownMetric,
}

impl PutErrorKind {
    /// Every kind, in the order in which they are listed.
    pub const ALL: [Self; 4] =
        [Self::Storage, Self::InvalidValue, Self::IllegalArgument, Self::UnknownMetric];

    /// The tag's value.
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
