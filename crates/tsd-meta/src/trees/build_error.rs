//! Errors of placing a series in a tree.

/// Cause why a series cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeBuildError {
    /// A regular expression of a rule is invalid.
    #[error("rule {rule}: {error}")]
    Pattern {
        /// The rule.
        rule: String,
        /// Error of the expression.
        error: String,
    },
    /// The path has too many levels.
    #[error("the path has more than {most} levels")]
    TooDeep {
        /// Most levels.
        most: usize,
    },
    /// A name is too long.
    #[error("a name has more than {most} bytes")]
    NameTooLong {
        /// Most bytes.
        most: usize,
    },
    /// The names of the path together are too long.
    #[error("the names of the path have more than {most} bytes")]
    PathTooLong {
        /// Most bytes.
        most: usize,
    },
}
