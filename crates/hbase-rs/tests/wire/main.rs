//! What a real HBase 2.6.4 and a client said to each other, read to the last byte.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests and their helpers fail by panicking"
)]

mod answers;
mod client;
mod multi;
mod recording;
mod replay;
mod server;
