//! Expressions that cost every reader a second look, comments that a blind rename has broken, and paragraphs that should be lists.

use super::sources::{SourceFile, files, split};

/// Expressions that comments and pages do not use, in lower case.
const BANNED: &[&str] = &["all the same", "are none", "beside", "has none", "is none", "so many"];

/// Names with a capital letter inside that begin a sentence.
const NAMES: &[&str] = &[
    "HBase",
    "JavaScript",
    "MetricsQL",
    "NaN",
    "OpenTSDB",
    "TSMeta",
    "UIDMeta",
    "VictoriaMetrics",
    "ZooKeeper",
];

/// Longest paragraph of a page, characters.
const MAX_PARAGRAPH: usize = 900;

/// Pages that quote the expressions.
const MAY_QUOTE: &[&str] = &["docs/glossary.md", "tests/tidy/prose.rs"];

#[test]
fn comments_and_pages_are_plain() {
    let wrong = violations(&files(&["rs", "md"]));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn planted_violations_are_found() {
    let found = |path: &str, text: &str| {
        violations(&[SourceFile { path: path.into(), text: text.into() }]).len()
    };
    let source = |text: &str| found("crates/a/src/a.rs", text);
    assert_eq!(source("// The row is\n// none of them.\n"), 1, "across lines");
    assert_eq!(source("/// Reads so many bytes.\n"), 1);
    assert_eq!(source("/// Reads so many bytes\n/// as fit.\n"), 0);
    assert_eq!(source("let is_none = 1;\n"), 0);
    assert_eq!(source("fn a() {}\n\n// HeavyQuery queries run.\n"), 1);
    assert_eq!(
        source("// OpenTSDB writes.\n// One\n// TwoThree go on.\n// `TwoThree` is one.\n"),
        0
    );
    assert_eq!(found("docs/a.md", &format!("# A\n\n{}\n", "Word. ".repeat(200))), 1);
    assert_eq!(found("docs/a.md", &format!("| a |\n|---|\n| {} |\n", "Word. ".repeat(200))), 0);
}

fn violations(files: &[SourceFile]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| !MAY_QUOTE.contains(&file.path.as_str())) {
        let prose = if file.is_page() { file.text.clone() } else { split(&file.text).comments };
        wrong.extend(banned(&prose).map(|phrase| format!("{}: \"{phrase}\"", file.path)));
        if file.is_page() {
            wrong.extend(
                long_paragraphs(&file.text).map(|begin| format!("{}: {begin}…", file.path)),
            );
        } else {
            wrong.extend(renamed(&prose).map(|word| format!("{}: {word}", file.path)));
        }
    }
    wrong
}

fn banned(prose: &str) -> impl Iterator<Item = &'static str> {
    let plain = prose.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    BANNED.iter().copied().filter(move |phrase| {
        plain.match_indices(&format!(" {phrase} ")).any(|(at, _)| {
            // "So many points as fit" names the number.
            let rest = plain.get(at..).unwrap_or_default();
            *phrase != "so many" || !rest.split(' ').take(8).any(|word| word == "as")
        })
    })
}

/// First words of comments that are identifiers.
fn renamed(comments: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = comments.lines().collect();
    let begins = move |at: usize| {
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        let follows =
            at.checked_sub(1).and_then(|before| lines.get(before)).is_some_and(is_comment);
        let line = lines.get(at)?.trim_start();
        let text = line.strip_prefix("//")?.trim_start_matches(['/', '!']).strip_prefix(' ')?;
        let word = text.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        // "UIDs" is a plural.
        let word_alone = word.strip_suffix('s').unwrap_or(word);
        let is_identifier = word.starts_with(char::is_uppercase)
            && word_alone.chars().any(char::is_lowercase)
            && word.chars().skip(1).any(char::is_uppercase);
        (!follows && is_identifier && !NAMES.contains(&word)).then_some(word)
    };
    (0..comments.lines().count()).filter_map(begins)
}

/// First characters of paragraphs that are too long. Tables, lists and code are not paragraphs.
fn long_paragraphs(page: &str) -> impl Iterator<Item = String> {
    page.split("\n\n")
        .filter(|block| {
            let first = block.trim_start();
            !block.lines().any(|line| line.starts_with('|'))
                && !first.starts_with(['-', '*', '#', '`', '>'])
                && !first.starts_with(|c: char| c.is_ascii_digit())
                && block.chars().count() > MAX_PARAGRAPH
        })
        .map(|block| block.chars().take(60).collect())
}
