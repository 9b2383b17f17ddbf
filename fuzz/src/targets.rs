//! What is fed with bytes from outside.
//!
//! None of it may panic, hang or hold more than a few times what it was given, and what must hold of
//! the outcome is asserted. The same functions are driven by libFuzzer (`fuzz_targets/`) and, over the
//! seeds and small changes of them, by the tests of the workspace.

mod bodies;
mod bytes;
mod frames;
mod lines;
mod queries;

/// Name of a target, and what it does with an input.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("cells", frames::cells),
    ("downsample", queries::downsample),
    ("exp_body", queries::exp_body),
    ("expression", queries::expression),
    ("frames", frames::frames),
    ("gexp", queries::gexp),
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

/// Feeds the target of that name.
pub(crate) fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let Some((_, target)) = target else { panic!("no target {name}") };
    target(input);
}
