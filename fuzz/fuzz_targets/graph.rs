#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| saltern_fuzz::run("graph", input));
