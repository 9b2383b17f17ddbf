//! `/api/query/exp`: arithmetic over the series of several metrics.
//!
//! Metrics become sub queries, and their series are joined by tags. An expression is evaluated at
//! every time of any series. The expression language is a subset of JEXL 2.1 with its arithmetic:
//! integers divide as integers, literals with a decimal point are 32-bit floats, and a division by
//! zero is zero.

mod evaluate;
mod expression;
mod graph;
mod join;
mod language;
mod raw;
mod validate;

pub use evaluate::{ExpColumn, ExpOutput, ExpResult};
pub use expression::{ExpExpression, JoinOperator};
pub use raw::{
    RawExpExpression, RawExpFill, RawExpFilter, RawExpJoin, RawExpMetric, RawExpOutput,
    RawExpQuery, RawExpTime,
};
pub use validate::{ExpMetric, ExpQuery};
