//! Names and words: generic type names stay rare, and the words that `docs/glossary.md` replaced do
//! not come back. Texts that OpenTSDB's clients see are string literals and are not checked.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::{SourceFile, files, split};

/// Most places in which one visible type name may be defined.
const MOST_DEFINITIONS: usize = 3;

/// Words that no identifier contains (docs/glossary.md says what to use instead), each with the path that
/// it is banned below.
const WORDS: &[(&str, &str)] = &[
    ("aboard", ""),
    ("away", ""),
    ("desk", ""),
    ("doer", ""),
    ("freezes", "crates/tsd-storage"),
    ("frozen", "crates/tsd-storage"),
    ("generation", "crates/tsd-storage"),
    ("generations", "crates/tsd-storage"),
    ("homeless", ""),
    ("lane", ""),
    ("lanes", ""),
    ("parked", ""),
    ("parking", ""),
    ("spare", ""),
    ("spares", ""),
    ("stray", ""),
    ("strays", ""),
    ("strikes", ""),
    ("told", ""),
    ("vitals", ""),
    ("wishes", ""),
];

/// Runs of words that no identifier contains.
const PHRASES: &[&str] = &["first words", "set aside", "shared backend", "take off", "top runs"];

/// Types that no file defines, visible or not.
const TYPES: &[&str] = &[
    "Contribution",
    "Flight",
    "Gate",
    "Guard",
    "Halt",
    "IngestRows",
    "Known",
    "Lane",
    "Order",
    "Outcome",
    "Place",
    "Room",
    "Shared",
    "Spread",
    "State",
    "Step",
    "Turn",
    "Vitals",
    "Watch",
    "Way",
    "Wishes",
];

/// Expressions that comments and pages do not use, in lower case.
const PROSE: &[&str] = &[
    "aboard",
    "doer",
    "doers",
    "homeless",
    "in the life of",
    "is frozen",
    "is parked",
    "made anew",
    "on its way",
    "on their way",
    "parked",
    "set aside",
    "strays",
    "the last word",
    "top runs",
    "vitals",
    "wishes",
];

/// Names of crates from outside.
const FOREIGN: &[&str] = &["parking_lot"];

/// Messages of HBase, generated with HBase's names.
const GENERATED: &str = "hbase.pb.rs";

/// Pages that quote the words they replace.
const MAY_QUOTE: &[&str] = &["CHANGELOG.md", "docs/glossary.md", "tests/tidy/names.rs"];

#[test]
fn module_files_stand_beside_their_folders() {
    let wrong: Vec<String> = files(&["rs"])
        .into_iter()
        .map(|file| file.path)
        .filter(|p| p.ends_with("mod.rs"))
        .collect();
    assert!(wrong.is_empty(), "`foo.rs` beside `foo/`, not `foo/mod.rs`: {wrong:?}");
}

#[test]
fn type_names_carry_their_subject() {
    let wrong = generic_types(&files(&["rs"]));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn identifiers_use_the_glossary() {
    let wrong = banned_identifiers(&files(&["rs"]));
    assert!(wrong.is_empty(), "see docs/glossary.md\n{}", wrong.join("\n"));
}

#[test]
fn comments_and_pages_use_the_glossary() {
    let wrong = banned_prose(&files(&["rs", "md"]));
    assert!(wrong.is_empty(), "see docs/glossary.md\n{}", wrong.join("\n"));
}

/// Each check finds its planted violations.
#[test]
fn planted_violations_are_found() {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    let found =
        |text: &str| banned_identifiers(&[file("crates/tsd-storage-wal/src/a.rs", text)]).len();
    assert_eq!(found("fn is_frozen() {} struct TakeOff; // frozen"), 2);
    assert_eq!(found("struct Flight;"), 1);
    assert_eq!(found("let single_flight = \"frozen\"; fn generation() {}"), 1);
    assert_eq!(
        banned_prose(&[file("a.rs", "// A batch is on its\n// way.\nlet strays = 1;")]).len(),
        1
    );
    assert_eq!(banned_prose(&[file("docs/a.md", "Parked regions.")]).len(), 1);
    let four: Vec<SourceFile> = (0..4)
        .map(|i| file(&format!("crates/a/src/{i}.rs"), "pub(crate) struct RowKind;\nstruct Own;"))
        .collect();
    assert_eq!(generic_types(&four).len(), 1);
    assert!(generic_types(&four[1..]).is_empty());
}

fn generic_types(files: &[SourceFile]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_production(&file.path)) {
        let code = split(&file.text).code;
        let production = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in production.lines() {
            if let Some((visible, name)) = defined_type(line)
                && visible
            {
                places.entry(name.to_owned()).or_default().push(&file.path);
            }
        }
    }
    places
        .into_iter()
        .filter(|(_, files)| files.len() > MOST_DEFINITIONS)
        .map(|(name, files)| format!("{name} is defined in {} places: {files:?}", files.len()))
        .collect()
}

fn is_production(path: &str) -> bool {
    let crates = path.starts_with("crates/") || path.starts_with("cluster/");
    crates
        && path.contains("/src/")
        && !path.contains("/tests/")
        && !path.ends_with("/tests.rs")
        && !path.ends_with(GENERATED)
}

/// The type that a line defines and whether other modules see it.
fn defined_type(line: &str) -> Option<(bool, &str)> {
    let line = line.trim_start();
    let after = line.strip_prefix("pub").map(|rest| {
        rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest)
    });
    let visible = after.is_some();
    let definition = after.unwrap_or(line).trim_start();
    // An associated type is part of a trait, not a separate name.
    let keywords = if visible || !line.contains('=') {
        &["struct ", "enum ", "trait ", "type "][..]
    } else {
        &["struct ", "enum ", "trait "][..]
    };
    let rest = keywords.iter().find_map(|keyword| definition.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some((visible, &rest[..end])).filter(|(_, name)| !name.is_empty())
}

fn banned_identifiers(files: &[SourceFile]) -> Vec<String> {
    let mut wrong = BTreeSet::new();
    let own = |file: &&SourceFile| {
        !MAY_QUOTE.contains(&file.path.as_str()) && !file.path.ends_with(GENERATED)
    };
    for file in files.iter().filter(own) {
        let code = split(&file.text).code;
        for line in code.lines() {
            if let Some((_, name)) = defined_type(line)
                && TYPES.contains(&name)
            {
                wrong.insert(format!("{}: type {name}", file.path));
            }
        }
        let identifiers = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        for identifier in identifiers.filter(|name| !FOREIGN.contains(name)) {
            let words = words_of(identifier);
            let banned = |word: &String| {
                WORDS.iter().any(|(other, below)| other == word && file.path.starts_with(below))
            };
            let text = format!(" {} ", words.join(" "));
            let phrase = PHRASES.iter().any(|phrase| text.contains(&format!(" {phrase} ")));
            if phrase || words.iter().any(banned) {
                wrong.insert(format!("{}: {identifier}", file.path));
            }
        }
    }
    wrong.into_iter().collect()
}

/// `take_off`, `TakeOff` and `TAKE_OFF` are all `take`, `off`.
fn words_of(identifier: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut lower_before = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && lower_before) {
            words.push(std::mem::take(&mut word));
        }
        if c != '_' {
            word.extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase() || c.is_ascii_digit();
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn banned_prose(files: &[SourceFile]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| !MAY_QUOTE.contains(&file.path.as_str())) {
        let prose = if file.is_page() { file.text.clone() } else { split(&file.text).comments };
        let plain = prose.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
        let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
        for phrase in PROSE {
            if plain.contains(&format!(" {phrase} ")) {
                wrong.push(format!("{}: \"{phrase}\"", file.path));
            }
        }
    }
    wrong
}
