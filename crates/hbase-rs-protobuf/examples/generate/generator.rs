//! Code generation from `.proto` files.

use std::{error::Error, fs, path::Path};

/// Path of the generated file in the crate.
pub(crate) const OUTPUT: &str = "src/hbase.pb.rs";

/// Returns the text of the generated file.
pub(crate) fn generate(root: &Path) -> Result<String, Box<dyn Error>> {
    let proto = root.join("proto");
    let mut files: Vec<_> = fs::read_dir(proto.join("hbase"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let descriptors = protox::compile(&files, [&proto])?;
    let directory = tempfile::tempdir()?;
    prost_build::Config::new().bytes(["."]).out_dir(directory.path()).compile_fds(descriptors)?;
    Ok(fs::read_to_string(directory.path().join("hbase.pb.rs"))?)
}
