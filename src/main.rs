//! The `tsdb` command, implemented in the crate `tsd-cli`. The root package builds the binary because
//! cargo passes its path only to tests and benches of the same package.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tsd_cli::main()
}
