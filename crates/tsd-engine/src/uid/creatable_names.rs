//! Limits which names the points of a session may create.

use tsd_model::UidKind;

/// Kinds of names that the points of a session may create, if the configuration allows points to create them at all.
/// On a server with authentication, the kinds depend on the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatableNames {
    /// Metrics.
    pub metrics: bool,
    /// Tag keys.
    pub tagks: bool,
    /// Tag values.
    pub tagvs: bool,
}

impl Default for CreatableNames {
    /// All kinds.
    fn default() -> Self {
        Self { metrics: true, tagks: true, tagvs: true }
    }
}

impl CreatableNames {
    /// True if names of the kind may be created.
    #[must_use]
    pub const fn allows(self, kind: UidKind) -> bool {
        match kind {
            UidKind::Metric => self.metrics,
            UidKind::Tagk => self.tagks,
            UidKind::Tagv => self.tagvs,
        }
    }
}
