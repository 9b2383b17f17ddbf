//! The codec against recorded data: test vectors, and every cell a real OpenTSDB left in its tables.

mod broken;
mod golden;
mod support;
mod vectors;
