//! Last stage: resolves UIDs to names, and defines the result as callers see it.

pub(crate) mod naming;
pub(crate) mod result;
