//! Generates `src/hbase.pb.rs` from the `.proto` files.
//!
//! Run it after a change of the `.proto` files: `cargo run -p hbase-rs-protobuf --example generate`.

use std::{error::Error, fs, path::Path};

mod generator;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::write(root.join(generator::OUTPUT), generator::generate(root)?)?;
    Ok(())
}
