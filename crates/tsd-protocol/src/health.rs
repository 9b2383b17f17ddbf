//! How a daemon says that it is well.

/// State of a daemon, as `status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Storage was not reached yet.
    Startup,
    /// All of storage answers.
    Ok,
    /// Some of it answers.
    Partial,
    /// None of it answers.
    Error,
    /// The daemon is going down.
    ShuttingDown,
}

impl Health {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Error => "error",
            Self::ShuttingDown => "shutting-down",
        }
    }
}
