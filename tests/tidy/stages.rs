//! Checks that the stages of a query use only earlier stages.

use super::sources::{files, split};

const QUERY: &str = "crates/tsd-read/src/query/";

/// The folders of the read path, each with the folders that it must not name.
const STAGES: &[(&str, &[&str])] = &[
    ("run", &["plan", "read", "aggregate", "render"]),
    ("plan", &["read", "aggregate", "render"]),
    ("read", &["aggregate", "render"]),
    ("aggregate", &["render"]),
];

/// Modules that lead a query through the stages: no stage may name them.
const LEADERS: &[&str] = &["execution", "explain", "expressions", "shared_executions", "sub_query"];

#[test]
fn stages_of_a_query_use_only_earlier_ones() {
    let files = files(&["rs"]);
    let mut wrong = Vec::new();
    for (stage, later) in STAGES {
        let folder = format!("{QUERY}{stage}/");
        let own: Vec<_> = files.iter().filter(|file| file.path.starts_with(&folder)).collect();
        assert!(!own.is_empty(), "{folder} has no files");
        for file in own {
            // Runners and their actors are given the work of a query by what leads it.
            for name in later.iter().chain(LEADERS).filter(|name| names(&file.text, name)) {
                wrong.push(format!("{} names {name}", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// True if code has a path through a module.
fn names(source: &str, module: &str) -> bool {
    let code = split(source).code;
    let path = format!("{module}::");
    let is_start = |at: usize| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    };
    code.match_indices(&path).any(|(at, _)| is_start(at))
}

#[test]
fn paths_are_found_in_code_alone() {
    assert!(names("use crate::query::{plan::names, run};", "plan"));
    assert!(!names("use crate::query::run::row_plan::X; // plan::names", "plan"));
}
