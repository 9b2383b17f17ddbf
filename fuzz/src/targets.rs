//! Fuzz targets: parsers and decoders of bytes from outside.
//!
//! No input may cause a panic or a hang, or allocate more than a few times its length; properties of the
//! results are asserted. libFuzzer runs the targets (`main.rs`); `tests/seeds.rs` includes this file
//! and runs them on the seeds and mutations of them.

mod bodies;
mod bytes;
mod files;
mod frames;
mod indexes;
mod lines;
mod lists;
mod logs;
mod nodes;
mod objects;
mod parts;
mod queries;
mod znodes;

/// Name and function of a target.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("cells", frames::cells),
    ("credentials", lines::credentials),
    ("downsample", queries::downsample),
    ("exp_body", queries::exp_body),
    ("expression", queries::expression),
    ("frames", frames::frames),
    ("gexp", queries::gexp),
    ("graph", bodies::graph),
    ("inflated_body", bodies::inflated_body),
    ("log", logs::log),
    ("log_records", logs::log_records),
    ("meta_body", objects::meta_body),
    ("node_frames", nodes::node_frames),
    ("packed_run", bytes::packed_run),
    ("part_blocks", parts::part_blocks),
    ("part_files", parts::part_files),
    ("put_body", bodies::put_body),
    ("query_body", bodies::query_body),
    ("query_uri", bodies::query_uri),
    ("rows", bytes::rows),
    ("search", bodies::search),
    ("search_body", objects::search_body),
    ("series_index", indexes::series_index),
    ("store_lists", lists::store_lists),
    ("tag_filter", queries::tag_filter),
    ("telnet", lines::telnet),
    ("time", queries::time),
    ("tree_body", objects::tree_body),
    ("uid_body", objects::uid_body),
    ("znode", znodes::znode),
];

/// Names of all targets.
pub fn names() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|(name, _)| *name)
}

/// Runs the target of this name on an input.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let Some((_, target)) = target else { panic!("no target {name}") };
    target(input);
}

/// Valid inputs of the targets that read files, each with its target; the writers of the files make
/// them.
pub fn generated() -> Vec<(&'static str, Vec<u8>)> {
    [parts::generated(), indexes::generated(), logs::generated(), lists::generated()].concat()
}
