//! `/api/query/exp`: arithmetic over the series of several metrics.
//!
//! Metrics become sub queries, their series are joined by tags, and an expression is worked out at
//! every instant that any of them has. The expression language is a part of JEXL 2.1 with its
//! arithmetic, which is not what one would write today: integers divide as integers, literals with
//! a point are 32-bit floats, and a division by zero is zero.

mod evaluate;
mod graph;
mod join;
mod language;
mod raw;
mod validate;

pub use evaluate::{ExpColumn, ExpOutput, ExpResult};
pub use raw::{
    RawExpExpression, RawExpFill, RawExpFilter, RawExpJoin, RawExpMetric, RawExpOutput,
    RawExpQuery, RawExpTime,
};
pub use validate::{ExpExpression, ExpMetric, ExpQuery, JoinOperator};
