//! Last stage: names, and the result as callers see it.

pub(crate) mod naming;
pub(crate) mod result;
