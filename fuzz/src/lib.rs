//! The targets for libFuzzer, with a limit on the memory of each run.

use peak_alloc::PeakAlloc;

#[path = "targets.rs"]
mod targets;

pub use targets::{generated, names};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes that a run may allocate for any input: a record of the log may stand for a batch of 64 MiB, and some hours in
/// intervals of a millisecond have 100 MiB of values.
const BYTES: usize = 256 << 20;
/// More bytes for each byte of the input.
const BYTES_EACH: usize = 1_024;

/// Runs the target of this name on an input. Fails if the run allocates more than the limit.
pub fn run(name: &str, input: &[u8]) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    targets::run(name, input);
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    let limit = BYTES + BYTES_EACH * input.len();
    assert!(
        peak <= limit,
        "{peak} bytes allocated for an input of {}; the limit is {limit}",
        input.len()
    );
}
