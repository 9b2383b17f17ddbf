//! Fakes of what Saltern talks to, for tests only.
//!
//! They run inside the test, on sockets of the loopback interface, and misbehave on demand.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a broken test fails by panicking"
)]

pub mod hbase;
pub mod zookeeper;
