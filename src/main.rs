//! The `tsdb` command. Everything it does is in the crate `tsd-cli`; this package only makes the
//! binary, so that the tests and benches beside it can start what a user starts.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tsd_cli::main()
}
