//! Runs the fuzz targets on their seeds, on the recorded queries, and on mutations of both: input from
//! outside never causes a panic.

// The package `fuzz` is a workspace of its own, so its library cannot be a dependency.
#[path = "../fuzz/src/targets.rs"]
#[expect(unreachable_pub, reason = "public in the package `fuzz`")]
mod targets;

use std::{fs, path::Path};

use tsd_testkit::Xorshift64;

use crate::conformance::json::Json;

/// Mutations of each input.
const MUTATIONS: usize = 40;

/// Tokens of the parsed languages.
const TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"\"",
    b"\\",
    b",",
    b":",
    b"|",
    b"*",
    b"-",
    b"%",
    b"#",
    b"=",
    b" ",
    b"\n",
    b"\0",
    b"\xFF",
    b"\xF0\0\0\0",
    b"null",
    b"NaN",
    b"1e999",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"99999999999999999999",
    b"\xC3\xA9",
    b"\xF0\x9F\x98\x80",
    b"-ago",
    b"1yc",
    b"0all",
    b"rate",
    b"percentiles[",
    b"!",
    b"&&",
    b"\\u0000",
];

#[test]
fn seeds_and_their_mutations_are_accepted_or_rejected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut mutator = Mutator(Xorshift64::new(0x9E37_79B9_7F4A_7C15));
    let mut inputs = 0;
    for directory in fs::read_dir(root.join("fuzz/seeds")).expect("seeds") {
        let directory = directory.expect("a directory").path();
        let name = directory.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(root.join(format!("fuzz/fuzz_targets/{name}.rs")).exists(), "{name} is a target");
        let mut seeds: Vec<Vec<u8>> = fs::read_dir(&directory)
            .expect("seeds")
            .map(|file| fs::read(file.expect("a file").path()).expect("a seed"))
            .collect();
        assert!(!seeds.is_empty(), "{name} has seeds");
        seeds.sort();
        seeds.extend(recorded(name));
        for seed in &seeds {
            targets::run(name, seed);
            for _ in 0..MUTATIONS {
                targets::run(name, &mutator.mutate(seed, &seeds));
                inputs += 1;
            }
        }
    }
    assert!(inputs > 1_000, "{inputs} inputs");
}

/// The recorded queries in the format of a target.
fn recorded(name: &str) -> Vec<Vec<u8>> {
    let cases = Json::parse(include_str!("data/query-cases.json")).expect("cases");
    let uri = |case: &Json| case.get("request").and_then(|r| r.text_of("uri")).map(str::to_owned);
    let of_exp = |case: &Json| uri(case).is_some_and(|uri| uri.contains("/exp"));
    let bodies = |exp: bool| {
        let cases = cases.items().iter().filter(move |case| of_exp(case) == exp);
        cases.filter_map(|case| case.get("query")).map(|body| body.to_string().into_bytes())
    };
    match name {
        "query_body" => bodies(false).collect(),
        "exp_body" => bodies(true).collect(),
        "query_uri" => {
            let uris = cases.items().iter().filter_map(uri);
            uris.filter_map(|uri| Some(uri.split_once('?')?.1.as_bytes().to_vec())).collect()
        }
        _ => Vec::new(),
    }
}

/// Mutates inputs, in every run the same way.
struct Mutator(Xorshift64);

impl Mutator {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit as u64) as usize
    }

    /// Returns a copy with one to three small changes.
    fn mutate(&mut self, seed: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(8)).min(bytes.len());
            match self.below(6) {
                0 => drop(bytes.drain(at..end)),
                1 => bytes.truncate(at),
                2 => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
                3 => {
                    let repeated = bytes[at..end].repeat(1 + self.below(5));
                    bytes.splice(at..at, repeated);
                }
                4 => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    bytes.splice(at..end, token.iter().copied());
                }
                _ => {
                    let other = &others[self.below(others.len())];
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[self.below(other.len())..]);
                }
            }
        }
        bytes
    }
}
