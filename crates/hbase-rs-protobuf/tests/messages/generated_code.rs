//! Committed generated code.

use std::{fs, path::Path};

#[path = "../../examples/generate/generator.rs"]
mod generator;

#[test]
fn committed_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = fs::read_to_string(root.join(generator::OUTPUT)).unwrap();
    let generated = generator::generate(root).unwrap();
    assert!(
        committed == generated,
        "run `cargo run -p hbase-rs-protobuf --example generate` and commit {}",
        generator::OUTPUT
    );
}
