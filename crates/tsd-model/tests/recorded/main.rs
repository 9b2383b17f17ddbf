//! The codec against recorded data: test vectors, and every cell of tables recorded from a real OpenTSDB.

mod broken;
mod golden;
mod support;
mod vectors;
