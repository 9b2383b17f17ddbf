//! Reads the source files of the repository for the other checks: paths, code without comments, and
//! comments without code.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Directories that hold our own files.
const ROOTS: &[&str] = &["benches", "cluster", "crates", "docs", "fuzz/src", "src", "tests"];

/// A text file of the repository.
pub(super) struct SourceFile {
    /// Path below the root of the repository, with `/`.
    pub(super) path: String,
    /// Content.
    pub(super) text: String,
}

impl SourceFile {
    /// True for Markdown.
    pub(super) fn is_page(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "md")
    }
}

/// All files with one of these extensions, sorted by path. Recorded data and build output are left out.
pub(super) fn files(extensions: &[&str]) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for entry in fs::read_dir(root).expect("the root is readable") {
        paths.push(entry.expect("an entry").path());
    }
    paths.retain(|path| path.is_file());
    for directory in ROOTS {
        walk(&root.join(directory), &mut paths);
    }
    let mut files: Vec<SourceFile> = paths
        .iter()
        .filter(|path| {
            path.extension().is_some_and(|is| extensions.iter().any(|wanted| is == *wanted))
        })
        .map(|path| SourceFile {
            path: path.strip_prefix(root).expect("below the root").display().to_string(),
            text: fs::read_to_string(path).expect("UTF-8 text"),
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!files.is_empty(), "no files with the extensions {extensions:?}");
    files
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "data" {
            walk(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Rust source taken apart. Both halves keep the line breaks of the source.
pub(super) struct Split {
    /// Code; comments and the content of literals are blank.
    pub(super) code: String,
    /// Comments; everything else is blank.
    pub(super) comments: String,
}

/// Separates comments from code. It knows strings, raw strings, characters and nested block comments.
pub(super) fn split(source: &str) -> Split {
    let mut scanner = Scanner { rest: source, code: String::new(), comments: String::new() };
    while !scanner.rest.is_empty() {
        scanner.step();
    }
    Split { code: scanner.code, comments: scanner.comments }
}

struct Scanner<'a> {
    rest: &'a str,
    code: String,
    comments: String,
}

impl Scanner<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            let length = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(length, false, true);
        } else if self.rest.starts_with("/*") {
            self.take(block_comment_length(self.rest), false, true);
        } else if let Some(length) = raw_string_length(self.rest) {
            self.take(length, false, false);
        } else if self.rest.starts_with('"') {
            self.take(quoted_length(self.rest), false, false);
        } else if let Some(length) = character_length(self.rest) {
            self.take(length, false, false);
        } else if self.rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            let length = self
                .rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(self.rest.len());
            self.take(length, true, false);
        } else {
            self.take(self.rest.chars().next().map_or(1, char::len_utf8), true, false);
        }
    }

    fn take(&mut self, length: usize, code: bool, comment: bool) {
        let (taken, rest) = self.rest.split_at(length);
        for (kept, half) in [(code, &mut self.code), (comment, &mut self.comments)] {
            if kept {
                half.push_str(taken);
            } else {
                half.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            }
        }
        self.rest = rest;
    }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            let Some(next) = rest.chars().next() else { break };
            at += next.len_utf8();
        }
    }
    text.len()
}

/// Length of `r"…"`, `r#"…"#`, `br"…"` and the like at the start of `text`.
fn raw_string_length(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let after = &text[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end)? + end.len();
    Some(prefix.len() + hashes + 1 + length)
}

/// Length of a string literal, quotes included.
fn quoted_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a character literal; `None` for a lifetime.
fn character_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    let length = if inner.starts_with('\\') {
        // The character after the backslash may itself be a quote.
        2 + inner.get(2..)?.find('\'')? + 1
    } else {
        let c = inner.chars().next()?;
        inner[c.len_utf8()..].starts_with('\'').then_some(c.len_utf8() + 1)?
    };
    Some(1 + length)
}

#[test]
fn code_and_comments_are_separated() {
    let source =
        "let a = \"// no\"; // yes \"x\"\n/* b /* c */ d */ let r = r#\"e \" f\"#; '\\''; 'a: '\"'";
    let split = split(source);
    assert_eq!(
        split.comments.split_whitespace().collect::<Vec<_>>().join(" "),
        "// yes \"x\" /* b /* c */ d */"
    );
    assert_eq!(
        split.code.split_whitespace().collect::<Vec<_>>().join(" "),
        "let a = ; let r = ; ; 'a:"
    );
    assert_eq!(split.code.lines().count(), source.lines().count());
}
