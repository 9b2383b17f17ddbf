//! The `tsdb` command.

fn main() {}
