//! Health of a daemon.

/// Health of a daemon, as `status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Storage is available.
    Ok,
    /// Storage is unavailable.
    Error,
    /// The daemon is shutting down.
    ShuttingDown,
}

impl Health {
    /// Returns OpenTSDB's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::ShuttingDown => "shutting-down",
        }
    }
}
