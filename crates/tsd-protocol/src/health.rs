//! Health of a daemon.

/// Health of a daemon, as `status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes succeed.
    Ok,
    /// Some reads, or writes, fail.
    Partial,
    /// Neither reads nor writes succeed.
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
            Self::Partial => "partial",
            Self::Error => "error",
            Self::ShuttingDown => "shutting-down",
        }
    }
}
