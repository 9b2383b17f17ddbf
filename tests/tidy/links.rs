//! Checks links between pages of the repository. rustdoc checks links between items.

use std::{collections::BTreeSet, path::Path};

use super::sources::files;

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for page in files(&["md"]) {
        let folder = root.join(&page.path).parent().expect("a folder").to_owned();
        for target in targets(&page.text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { root.join(&page.path) } else { folder.join(file) };
            if !path.exists() {
                wrong.push(format!("{}: {target}: no such file", page.path));
            } else if !heading.is_empty() {
                let text = std::fs::read_to_string(&path).expect("a page");
                if !headings(&text).any(|other| other == heading) {
                    wrong.push(format!("{}: {target}: no such heading", page.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_lists_every_page() {
    let pages = files(&["md"]);
    let book = pages.iter().find(|page| page.path == "docs/SUMMARY.md").expect("the book");
    let listed: BTreeSet<&str> = targets(&book.text).into_iter().collect();
    let below_docs = pages.iter().filter_map(|page| page.path.strip_prefix("docs/"));
    let missing: Vec<&str> =
        below_docs.filter(|page| *page != "SUMMARY.md" && !listed.contains(page)).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

/// The walks through the code in ARCHITECTURE.md name functions as `crate/src/file.rs:function`.
#[test]
fn walks_through_the_code_name_existing_functions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("a page");
    let hops: Vec<(&str, &str)> =
        page.split('`').filter_map(|code| code.split_once(".rs:")).collect();
    let mut wrong = Vec::new();
    for (file, function) in &hops {
        let path = root.join("crates").join(format!("{file}.rs"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let found = [format!("fn {function}("), format!("fn {function}<")];
        if !found.iter().any(|definition| text.contains(definition)) {
            wrong.push(format!("{file}.rs has no function {function}"));
        }
    }
    assert!(hops.len() > 20, "the walks are in ARCHITECTURE.md");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A page names the tests of its statements, which must exist under these names.
#[test]
fn tests_that_pages_name_exist() {
    let sources = files(&["rs"]);
    let definitions = sources.iter().flat_map(|file| file.text.split("fn ").skip(1));
    let names: BTreeSet<&str> =
        definitions.filter_map(|rest| rest.split(['(', '<']).next()).collect();
    let mut wrong = Vec::new();
    let mut found = 0;
    for page in files(&["md"]) {
        for code in page.text.split('`') {
            let is_name =
                code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if !is_name || code.matches('_').count() < 4 || code.starts_with("tsd_") {
                continue;
            }
            found += 1;
            if !names.contains(code) {
                wrong.push(format!("{}: there is no test {code}", page.path));
            }
        }
    }
    assert!(found > 150, "{found} names of tests");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `[text](target)` links to inside the repository, outside of code blocks.
fn targets(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(links.map(|(target, _)| target).filter(|target| !target.contains("://")));
    }
    found
}

/// Anchors of a page's headings, as GitHub makes them.
fn headings(page: &str) -> impl Iterator<Item = String> {
    page.lines().filter(|line| line.starts_with('#')).map(|line| {
        line.trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[test]
fn targets_outside_of_code_blocks_are_found() {
    let page = "a [b](c.md#d) [e](https://f)\n```\n[g](h)\n```\n# A b: `c`\n";
    assert_eq!(targets(page), ["c.md#d"]);
    assert_eq!(headings(page).collect::<Vec<_>>(), ["a-b-c"]);
}
