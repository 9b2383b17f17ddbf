//! An expression of a valid request.

use super::language::Program;

/// An expression of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpExpression {
    /// Id of the expression.
    pub id: String,
    /// The expression.
    pub text: String,
    /// How series are joined.
    pub operator: JoinOperator,
    /// Join by the tags of the metrics' filters only.
    pub use_query_tags: bool,
    /// Join by aggregated tags, too.
    pub include_agg_tags: bool,
    pub(super) program: Program,
}

/// Series for which an expression is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JoinOperator {
    /// Series that any variable has.
    #[default]
    Union,
    /// Series that every variable has.
    Intersection,
}
