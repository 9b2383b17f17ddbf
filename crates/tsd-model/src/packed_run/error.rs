//! Errors of decoding and encoding packed runs.

/// Bytes that are not a packed run, or points that cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackedRunError {
    /// The bytes contradict their own header.
    #[error("damaged run: {0}")]
    Damaged(&'static str),
    /// The cells have a form that a run cannot reproduce.
    #[error("not packable: {0}")]
    NotPackable(&'static str),
}
