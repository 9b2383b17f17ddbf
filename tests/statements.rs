//! Compares statements of README.md and of the pages in `docs/` with the program (issue 37): keys with their
//! defaults, metrics, alerts, endpoints, files, the compiler, and every command line.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tsd_cli::config::keys;

use crate::TSDB;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Page that is generated from the program, with names of OpenTSDB's statistics.
const GENERATED: &str = "docs/compatibility.md";
/// Names that look like keys: a stored setting of nodes, which no configuration sets.
const NOT_KEYS: [&str; 3] =
    ["tsd.cluster.slot_tag_uids", "tsd.cluster.wire_versions", "tsd.connectionmgr.connections"];
/// Environment variables of tools and benches.
const OF_TOOLS: [&str; 7] =
    ["TSDB_USER", "TSDB_PASSWORD", "TSDB_TOKEN", "TSDB_CA", "TSDB_CERT", "TSDB_KEY", "TSDB_BINARY"];

/// A page, cut into lines.
struct Page {
    name: String,
    text: String,
}

/// README.md and the pages of `docs/`, without `docs/decisions/`.
fn pages() -> Vec<Page> {
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).expect("docs");
    let paths = docs.map(|entry| entry.expect("an entry").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let names = paths.filter(is_page).map(|path| {
        let name = path.file_name().and_then(OsStr::to_str).expect("UTF-8");
        format!("docs/{name}")
    });
    let mut names: Vec<_> = names.chain(["README.md".to_owned()]).collect();
    names.sort();
    let page = |name: String| Page { text: text(&name), name };
    names.into_iter().filter(|name| name != GENERATED).map(page).collect()
}

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}

impl Page {
    /// Number and text of each line, and whether it is in a block of code.
    fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let mut is_code = false;
        self.text.lines().enumerate().filter_map(move |(at, line)| {
            if line.starts_with("```") {
                is_code = !is_code;
                return None;
            }
            Some((at + 1, line, is_code))
        })
    }

    /// Code within text.
    fn inline_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let text = self.lines().filter(|(_, _, is_code)| !is_code);
        text.flat_map(|(at, line, _)| {
            line.split('`').skip(1).step_by(2).map(move |code| (at, code))
        })
    }
}

/// The words of a text that begin with a prefix and go on with letters, digits and `more`.
fn words<'a>(text: &'a str, prefix: &str, more: &[char]) -> Vec<&'a str> {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || more.contains(&c);
    let is_path = prefix.starts_with('/');
    let begins =
        |at: usize| is_path || text.get(..at).is_some_and(|before| !before.ends_with(is_inside));
    let found = text.match_indices(prefix).filter(|(at, _)| begins(*at));
    let rest = found.filter_map(|(at, _)| text.get(at..));
    rest.map(|rest| rest.split(|c| !is_inside(c)).next().unwrap_or_default())
        .map(|word| word.trim_end_matches('.'))
        .collect()
}

/// Checks each page; fails with the wrong lines.
fn check(wrong_of: impl Fn(&Page) -> Vec<(usize, String)>) {
    let mut wrong = Vec::new();
    for page in pages() {
        let found = wrong_of(&page).into_iter();
        wrong.extend(found.map(|(at, what)| format!("{}:{at}: {what}", page.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn keys_on_the_pages_exist() {
    let exists = |word: &str| {
        let stem = word.trim_end_matches('*').trim_end_matches('.');
        let is_prefix =
            |name: &str| name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.'));
        NOT_KEYS.contains(&word)
            || keys::find(word).is_some()
            || (word.contains(".*.") || keys::KEYS.iter().any(|key| is_prefix(key.name)))
            || (word.ends_with('*') && keys::KEYS.iter().any(|key| key.name.starts_with(stem)))
    };
    check(|page| {
        let of_line = |(at, line, _): (usize, &str, bool)| {
            words(line, "tsd.", &['.', '*'])
                .into_iter()
                .filter(|word| !exists(word))
                .map(|word| (at, format!("there is no key {word}")))
                .collect::<Vec<_>>()
        };
        page.lines().flat_map(of_line).collect()
    });
}

#[test]
fn environment_variables_on_the_pages_set_keys() {
    let known: BTreeSet<String> = keys::KEYS.iter().map(keys::Key::environment_variable).collect();
    check(|page| {
        let of_line = |(at, line, _): (usize, &str, bool)| {
            [words(line, "TSD_", &[]), words(line, "TSDB_", &[])]
                .concat()
                .into_iter()
                .filter(|word| !known.contains(*word) && !OF_TOOLS.contains(word))
                .map(|word| (at, format!("no key has the variable {word}")))
                .collect::<Vec<_>>()
        };
        page.lines().flat_map(of_line).collect()
    });
}

/// Defaults in words, of keys whose default is not a constant.
const DEFAULTS_IN_WORDS: [(&str, &str); 8] = [
    ("tsd.storage.hbase.user", "user of the process"),
    ("tsd.storage.hbase.series_index.size", "an eighth of `tsd.memory.limit`, at most 1 GiB"),
    ("tsd.storage.log.max_size", "4 GiB; 1 GiB with `ack = cluster`"),
    ("tsd.storage.memtable.size", "a tenth of `tsd.memory.limit`, at most 512 MiB"),
    ("tsd.storage.salt.width", "0 on HBase"),
    ("tsd.cluster.name", "host name"),
    ("tsd.core.authentication.plugin", "none"),
    ("tsd.cluster.advertise", ""),
];

/// Tables with the columns `key` and `default` name one key in a line.
#[test]
fn defaults_on_the_pages_are_those_of_the_program() {
    let mut compared = 0;
    for page in pages() {
        let mut is_table = false;
        for (at, line, _) in page.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, key, default, ..] = cells[..] else {
                is_table = false;
                continue;
            };
            is_table |= key == "key" && default == "default";
            let Some(key) = key.strip_prefix('`').and_then(|key| key.strip_suffix('`')) else {
                continue;
            };
            if !is_table || key.contains('`') {
                continue;
            }
            let place = format!("{}:{at}: {key}", page.name);
            let key = keys::find(key).unwrap_or_else(|| panic!("{place} is no key"));
            compared += 1;
            if DEFAULTS_IN_WORDS.contains(&(key.name, default)) {
                continue;
            }
            let number = default.trim_end_matches(" ms").trim_end_matches(" s").trim_matches('`');
            // Without a default; some keys have the word for a value.
            let expected = key.default.filter(|text| !text.is_empty()).unwrap_or("none");
            let shown = if number.is_empty() { "none" } else { number };
            assert_eq!(shown, expected, "{place}");
        }
    }
    assert!(compared > 30, "{compared} defaults");
}

#[test]
fn metrics_on_the_pages_exist() {
    let list = text("docs/metrics.md");
    let of_row = |line| words(line, "tsd_", &[]).first().copied();
    let known: BTreeSet<&str> =
        list.lines().filter(|line| line.starts_with("| `tsd_")).filter_map(of_row).collect();
    assert!(known.len() > 200, "{}", known.len());
    let exists = |word: &str| {
        let is_known = |name: &str| known.contains(name);
        let parts = ["_bucket", "_sum", "_count"];
        let is_group = word.ends_with('_') || word.ends_with('*');
        is_known(word)
            || parts.iter().any(|part| word.strip_suffix(part).is_some_and(is_known))
            || (is_group && known.iter().any(|name| name.starts_with(word.trim_end_matches('*'))))
    };
    check(|page| {
        let code = page.inline_code().filter(|(_, code)| !code.contains("::"));
        let of_code = |(at, code)| {
            let names = words(code, "tsd_", &['*']).into_iter();
            names.filter(|word| !exists(word)).map(move |word| (at, format!("no metric {word}")))
        };
        code.flat_map(of_code).collect()
    });
}

#[test]
fn alerts_on_the_pages_exist() {
    let rules = text("docs/prometheus/alerts.yml");
    let known: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(known.len() > 20, "{}", known.len());
    check(|page| {
        let of_line = |(at, line, _): (usize, &str, bool)| {
            let names = words(line, "Saltern", &[]).into_iter();
            let wrong = names.filter(|name| *name != "Saltern" && !known.contains(name));
            wrong.map(|name| (at, format!("no alert {name}"))).collect::<Vec<_>>()
        };
        page.lines().flat_map(of_line).collect()
    });
}

/// The table of requirements in `docs/authentication.md` has every path that is served.
#[test]
fn endpoints_on_the_pages_exist() {
    let page = text("docs/authentication.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `/")?.split('`').next());
    let known: Vec<String> = rows.map(|path| format!("/{path}")).collect();
    assert!(known.len() > 40, "{}", known.len());
    check(|page| {
        let paths = page.lines().flat_map(|(at, line, _)| {
            let paths = words(line, "/api/", &['/']).into_iter();
            paths.map(move |path| (at, path.trim_end_matches('/')))
        });
        let is_served = |path: &str| {
            known.iter().any(|known| {
                path.strip_prefix(known.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let wrong = paths.filter(|(_, path)| *path != "/api" && !is_served(path));
        wrong.map(|(at, path)| (at, format!("no endpoint {path}"))).collect()
    });
}

#[test]
fn files_of_the_source_that_the_pages_name_exist() {
    check(|page| {
        let paths = page.inline_code().filter_map(|(at, code)| {
            let path = code.split_whitespace().next()?;
            let is_path = ["crates/", "tests/", "docs/"].iter().any(|top| path.starts_with(top));
            is_path.then_some((at, path))
        });
        let is_missing = |path: &str| !path.contains('*') && !Path::new(ROOT).join(path).exists();
        let wrong = paths.filter(|(_, path)| is_missing(path));
        wrong.map(|(at, path)| (at, format!("no file {path}"))).collect()
    });
}

#[test]
fn cargo_commands_on_the_pages_name_benches_and_crates_that_exist() {
    let crates = fs::read_dir(Path::new(ROOT).join("crates")).expect("crates");
    let manifests: String = crates
        .map(|entry| entry.expect("an entry").path().join("Cargo.toml"))
        .chain(["Cargo.toml", "cluster/Cargo.toml"].map(|path| Path::new(ROOT).join(path)))
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    check(|page| {
        let of_line = |(at, line, _): (usize, &str, bool)| {
            let words: Vec<&str> = line.split([' ', '`']).collect();
            let pairs = words.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)));
            let named = pairs
                .filter(|(flag, _)| line.contains("cargo ") && ["-p", "--bench"].contains(flag));
            let is_missing = |name: &str| !manifests.contains(&format!("name = \"{name}\""));
            let wrong = named.filter(|(_, name)| is_missing(name));
            wrong.map(|(flag, name)| (at, format!("cargo: no {flag} {name}"))).collect::<Vec<_>>()
        };
        page.lines().flat_map(of_line).collect()
    });
}

#[test]
fn the_readme_names_the_oldest_compiler_that_is_tested() {
    let manifest = text("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.expect("a version").trim_matches('"');
    assert!(text("README.md").contains(&format!("Rust {version} or later")), "{version}");
}

/// The command lines of `tsdb` in a line of a block of code, or in code within text.
fn commands(code: &str) -> Vec<Vec<String>> {
    let code = code.split(" #").next().unwrap_or_default();
    let code = code.split(" >").next().unwrap_or_default().trim_start_matches("$ ");
    let commands = code.split("&&").filter_map(|command| command.trim().strip_prefix("tsdb "));
    let word = |word: &str| word.trim_matches(['\'', '"']).to_owned();
    commands.map(|command| command.split_whitespace().map(word).collect()).collect()
}

/// True if the parser of the program accepts a command line. With `--help` nothing is executed.
fn is_accepted(arguments: &[String]) -> bool {
    let mut command = Command::new(TSDB);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if arguments.first().is_none_or(|first| first != "help") {
        command.arg("--help");
    }
    command.status().expect("run tsdb").success()
}

#[test]
fn command_lines_on_the_pages_are_accepted() {
    assert!(!is_accepted(&["verify".to_owned(), "--no-such-option".to_owned()]));
    let mut tried = BTreeSet::new();
    let mut wrong = Vec::new();
    for page in pages() {
        let blocks = page.lines().filter(|(_, _, is_code)| *is_code);
        let all = blocks.map(|(at, line, _)| (at, line)).chain(page.inline_code());
        for (at, command) in
            all.flat_map(|(at, code)| commands(code).into_iter().map(move |c| (at, c)))
        {
            // Text may name an option without its value.
            let with_value = || [command.as_slice(), &["VALUE".to_owned()]].concat();
            let is_option = command.last().is_some_and(|last| last.starts_with("--"));
            if tried.insert(command.clone())
                && !is_accepted(&command)
                && !(is_option && is_accepted(&with_value()))
            {
                wrong.push(format!("{}:{at}: tsdb {}", page.name, command.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried.len() > 50, "{} commands", tried.len());
}

#[test]
fn command_lines_are_found_in_code() {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    assert_eq!(commands("$ tsdb verify   # all"), [words(&["verify"])]);
    assert_eq!(commands("tsdb a 'b*' >> c && tsdb d"), [words(&["a", "b*"])]);
    assert_eq!(commands("tsdb import x && rm x"), [words(&["import", "x"])]);
    assert!(commands("cargo run").is_empty());
}
