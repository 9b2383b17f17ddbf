//! Multi: many actions in one call to a server.
//!
//! A caller groups its actions by region ([`RegionShare`]), and [`call`] encodes and sends them.
//! [`MultiOutcome::into_results`] then returns the result of each action, or whether it is repeated.
//! Batches ([`Table::batch`](crate::Table::batch)), atomic row changes and buffers share this code.

mod action;
mod call;
mod encode;
mod load;
mod outcome;

pub use self::{
    action::Action,
    outcome::{ActionOutcome, MultiError, RegionOutcome, multi_outcomes},
};
pub(crate) use self::{
    action::ActionShare,
    call::{CallOptions, MultiOutcome, MultiResult, RegionResult, call},
    encode::{ActionPosition, CallLimits, Encoder, RegionEncoder, RegionShare},
    load::RegionLoad,
};
