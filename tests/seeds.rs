//! Runs the fuzz targets on their seeds, on the recorded queries, and on mutations of both, to check that no
//! outside input causes a panic.

// The package `fuzz` is a separate workspace, so its library cannot be a dependency.
#[path = "../fuzz/src/targets.rs"]
#[expect(unreachable_pub, reason = "public in the package `fuzz`")]
mod targets;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

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
    let seeds = root.join("fuzz/seeds");
    // `fuzz/run.sh` runs the targets that have a directory.
    assert_eq!(fs::read_dir(&seeds).expect("seeds").count(), targets::names().count());
    for name in targets::names() {
        let mut seeds: Vec<Vec<u8>> = fs::read_dir(seeds.join(name))
            .expect("seeds of the target")
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

/// The seeds `valid-*` are files as the writers make them, which the targets read whole. With `UPDATE_SEEDS` in the
/// environment the test writes them.
#[test]
fn valid_seeds_are_what_the_writers_make() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let mut made: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, seed) in targets::generated() {
        assert!(seed.len() < 8 << 10, "a seed of {name} has {} bytes", seed.len());
        targets::run(name, &seed);
        made.entry(name).or_default().push(seed);
    }
    for (name, made) in made {
        let directory = seeds.join(name);
        if std::env::var_os("UPDATE_SEEDS").is_some() {
            write_valid_seeds(&directory, &made);
        }
        let stored: Vec<_> =
            valid_seeds(&directory).iter().map(|seed| fs::read(seed).ok()).collect();
        assert!(
            stored.iter().flatten().eq(&made),
            "{name}: the seeds are older than the writers; UPDATE_SEEDS=1 writes them again"
        );
    }
}

/// The files of valid seeds in a directory, in order.
fn valid_seeds(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|file| file.path());
    let is_valid = |file: &PathBuf| {
        file.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("valid-"))
    };
    let mut files: Vec<_> = files.filter(is_valid).collect();
    files.sort();
    files
}

fn write_valid_seeds(directory: &Path, seeds: &[Vec<u8>]) {
    fs::create_dir_all(directory).expect("a directory");
    for old in valid_seeds(directory) {
        fs::remove_file(old).expect("an old seed");
    }
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(directory.join(format!("valid-{number:02}")), seed).expect("a seed");
    }
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

/// Mutates inputs the same way in every run.
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
