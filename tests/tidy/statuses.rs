//! Checks that only the crate of the protocol has OpenTSDB's statuses and texts.

use super::sources::{SourceFile, files, split};

/// Crates whose errors are causes without status.
const WITHOUT_STATUS: &[&str] = &[
    "crates/tsd-query/src",
    "crates/tsd-meta/src",
    "crates/tsd-runtime/src",
    "crates/tsd-read/src",
    "crates/tsd-engine/src",
    "crates/tsd-tools/src",
];

/// Sources of lines of a tool, which are not responses.
const TOOLS: &[&str] = &["crates/tsd-tools/src/fsck"];

/// Statuses of responses; comments of these crates have no such number.
const STATUSES: &[&str] =
    &["400", "401", "403", "404", "405", "408", "413", "424", "429", "500", "501", "503", "504"];

/// Beginnings of OpenTSDB's sentences, which these crates must not contain.
const SENTENCES: &[&str] = &["\"Sorry, ", "\"No such name", "\"Unable to ", "Please try "];

#[test]
fn queries_and_engine_know_no_http_status() {
    let wrong = statuses(&files(&["rs"]));
    assert!(wrong.is_empty(), "tsd-protocol maps causes to statuses\n{}", wrong.join("\n"));
}

fn statuses(files: &[SourceFile]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in files {
        let is_test = file.path.contains("/tests") || file.path.ends_with("testing.rs");
        if is_test || !WITHOUT_STATUS.iter().any(|below| file.path.starts_with(below)) {
            continue;
        }
        let halves = split(&file.text);
        let lines = halves.code.lines().zip(halves.comments.lines()).zip(file.text.lines());
        for (number, ((code, comment), text)) in lines.enumerate() {
            let has_type =
                code.contains("StatusCode") || (code.contains("status") && code.contains("u16"));
            let has_number = comment
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .any(|word| STATUSES.contains(&word));
            let is_tool = TOOLS.iter().any(|below| file.path.starts_with(below));
            let has_text = !is_tool
                && comment.trim().is_empty()
                && SENTENCES.iter().any(|sentence| text.contains(sentence));
            if has_type || has_number || has_text {
                wrong.push(format!("{}:{}: {}", file.path, number + 1, text.trim()));
            }
        }
    }
    wrong
}

#[test]
fn statuses_are_found() {
    let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
    let engine = "crates/tsd-engine/src/put_error.rs";
    let found = statuses(&[
        file(engine, "/// Ends as 413.\nfn status(&self) -> u16 {\n    7\n}\n"),
        file(engine, "let text = \"Sorry, no\";\nlet part = 400;\n"),
        file("crates/tsd-protocol/src/http.rs", "fn status(&self) -> u16 {}\n"),
    ]);
    let lines: Vec<&str> = found.iter().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(
        lines,
        ["/// Ends as 413.", "fn status(&self) -> u16 {", "let text = \"Sorry, no\";"]
    );
}
