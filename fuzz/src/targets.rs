//! Fuzz targets: parsers and decoders of bytes from outside.
//!
//! No input may cause a panic or a hang, or allocate more than a few times its length; properties of the
//! results are asserted. libFuzzer runs the targets (`fuzz_targets/`); `tests/seeds.rs` includes this file
//! and runs them on the seeds and mutations of them.

mod bodies;
mod bytes;
mod frames;
mod lines;
mod queries;

/// Name and function of a target.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("cells", frames::cells),
    ("downsample", queries::downsample),
    ("exp_body", queries::exp_body),
    ("expression", queries::expression),
    ("frames", frames::frames),
    ("gexp", queries::gexp),
    ("graph", bodies::graph),
    ("packed_run", bytes::packed_run),
    ("put_body", bodies::put_body),
    ("query_body", bodies::query_body),
    ("query_uri", bodies::query_uri),
    ("rows", bytes::rows),
    ("search", bodies::search),
    ("tag_filter", queries::tag_filter),
    ("telnet", lines::telnet),
    ("time", queries::time),
];

/// Runs the target of this name on an input.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let Some((_, target)) = target else { panic!("no target {name}") };
    target(input);
}
