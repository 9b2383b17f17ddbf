//! The messages give HBase's bytes, and the committed code is that of the `.proto` files.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail by panicking"
)]

mod fresh;
mod vectors;
