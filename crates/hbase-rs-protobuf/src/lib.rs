//! Protocol buffer messages of HBase's client protocol, releases 2.4 to 3.0.
//!
//! Only messages: frames, cells and connections are the business of `hbase-rs`. The `.proto` files
//! under `proto/` are ours; field numbers, types and names follow HBase, so that encoded bytes are
//! the same. Everything is proto2: an absent field and one set to its default differ on the wire.
//!
//! Rust code is generated from them by `cargo run -p hbase-rs-protobuf --example generate` and
//! committed, so that building needs neither `protoc` nor a build script; a test compares the two.
//!
//! Byte fields are [`bytes::Bytes`]: decoded out of a [`bytes::Bytes`] they are slices of it and
//! keep it alive.
//!
//! Left out on purpose: bulk loading, snapshots, replication, load reports of servers, and all that
//! servers say only to each other.

#[rustfmt::skip]
#[expect(
    missing_docs,
    clippy::must_use_candidate,
    reason = "generated; messages are documented, and those fields whose name does not say it"
)]
#[path = "hbase.pb.rs"]
mod messages;

pub use messages::*;
