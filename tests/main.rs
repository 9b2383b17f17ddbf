//! What is seen from outside: one binary, a module an area.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod crash;
mod daemon;
mod golden;
mod http;
mod socket;
mod start;
mod telnet;
mod tidy;
