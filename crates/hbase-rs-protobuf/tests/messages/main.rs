//! Checks that the encodings equal HBase's, and that the committed code is up to date with the
//! `.proto` files.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail by panicking"
)]

mod generated_code;
mod vectors;
