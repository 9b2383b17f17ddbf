//! State of a table, which the master decides and hbase:meta stores.

use hbase_rs_protobuf as pb;

/// State of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableState {
    /// Serves reads and writes.
    Enabled,
    /// Rejects reads and writes; its regions are closed.
    Disabled,
    /// The master closes its regions.
    Disabling,
    /// The master opens its regions.
    Enabling,
}

impl TableState {
    /// Encodes the state as a message.
    #[doc(hidden)]
    #[must_use]
    pub const fn to_message(self) -> pb::table_state::State {
        match self {
            Self::Enabled => pb::table_state::State::Enabled,
            Self::Disabled => pb::table_state::State::Disabled,
            Self::Disabling => pb::table_state::State::Disabling,
            Self::Enabling => pb::table_state::State::Enabling,
        }
    }

    pub(crate) const fn from_message(state: pb::table_state::State) -> Self {
        match state {
            pb::table_state::State::Enabled => Self::Enabled,
            pb::table_state::State::Disabled => Self::Disabled,
            pb::table_state::State::Disabling => Self::Disabling,
            pb::table_state::State::Enabling => Self::Enabling,
        }
    }
}
