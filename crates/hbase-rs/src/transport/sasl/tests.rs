//! Tests with a mechanism that stands in for GSSAPI.

mod exchange;
mod layers;
mod stand_in;
