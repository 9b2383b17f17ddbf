//! Replay of recorded exchanges with HBase 2.6.4.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail by panicking"
)]

mod client;
mod multi;
#[path = "../../src/recorded.rs"]
#[expect(dead_code, reason = "the unit tests use more of it")]
mod recorded;
mod recording;
mod replay;
mod responses;
mod server;
