//! One program with all targets; the variable `FUZZ_TARGET` names the one to run.

#![no_main]

use std::{env, sync::LazyLock};

static TARGET: LazyLock<String> =
    LazyLock::new(|| env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target"));

libfuzzer_sys::fuzz_target!(|input: &[u8]| saltern_fuzz::run(&TARGET, input));
