//! Why a name has no UID.

use tsd_model::UidKind;
use tsd_storage::StorageError;

/// Why a name was not resolved or assigned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UidError {
    /// The name has no UID and none may be created here.
    #[error("no such name for '{kind}': '{name}'")]
    NoSuchName {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// The UID has no name.
    #[error("no such unique ID for '{kind}': {uid:?}")]
    NoSuchUid {
        /// Kind of the UID.
        kind: UidKind,
        /// Its bytes.
        uid: Vec<u8>,
    },
    /// An assignment or rename found the name taken.
    #[error("the {kind} name '{name}' already has UID {uid:?}")]
    NameTaken {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// Its UID.
        uid: Vec<u8>,
    },
    /// The name is empty or holds a character that names must not have (`None`: it is empty).
    #[error("illegal name '{name}' for '{kind}'")]
    IllegalName {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// The first illegal character.
        character: Option<char>,
    },
    /// The white list keeps new names like this out.
    #[error("the {kind} name '{name}' is blocked by the UID filter")]
    BlockedByFilter {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// Every UID of the kind's width is handed out.
    #[error("all unique IDs for {kind} on {width} bytes are already assigned")]
    AllAssigned {
        /// The kind.
        kind: UidKind,
        /// Width of its UIDs.
        width: usize,
    },
    /// The numbers tried had names already, though the counter had not reached them.
    #[error("the {kind} numbers tried for '{name}' were all taken")]
    NumbersTaken {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// Random UIDs met taken ones too often.
    #[error("failed to assign a random ID for {kind} '{name}' after {attempts} attempts")]
    RandomExhausted {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// Attempts made.
        attempts: u32,
    },
    /// The table holds a UID of another width.
    #[error("the {kind} name '{name}' has a UID of {found} bytes, not {expected}")]
    WrongWidth {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The name or UID is being renamed or deleted.
    #[error("the {kind} name '{name}' is being changed")]
    BeingChanged {
        /// Kind of the name.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Too many names wait for a UID.
    #[error("too many names wait for a UID")]
    Throttled,
    /// The assigner failed while it worked on the name.
    #[error("the UID assigner failed")]
    Lost,
    /// The engine was shut down.
    #[error("the engine is shut down")]
    Closed,
}
