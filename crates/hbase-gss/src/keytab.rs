//! Keytabs, read without the library to say what is wrong with one.
//!
//! Keys are not kept. MIT Kerberos, Heimdal and Java write version 2 (`05 02`, big-endian); version 1 (`05 01`) has
//! the byte order of its machine.

mod parser;

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Largest keytab in bytes. Real ones have some kilobytes.
const MAX_SIZE: u64 = 4 << 20;

/// Number of principals that an error lists.
const LISTED: usize = 5;

/// Principals of a keytab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keytab {
    file: PathBuf,
    principals: Vec<String>,
}

/// What is wrong with a keytab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeytabError {
    /// The file does not exist.
    #[error("keytab {}: the file does not exist", file.display())]
    Missing {
        /// Path of the keytab.
        file: PathBuf,
    },
    /// The file exists but cannot be read.
    #[error("keytab {}: cannot be read: {source}", file.display())]
    NotReadable {
        /// Path of the keytab.
        file: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// The file is something else.
    #[error("keytab {}: not a keytab: {reason}", file.display())]
    NotKeytab {
        /// Path of the file.
        file: PathBuf,
        /// What it has instead.
        reason: String,
    },
    /// An entry is cut off or has impossible lengths.
    #[error("keytab {}: the entry at byte {offset} is damaged: {reason}", file.display())]
    Damaged {
        /// Path of the keytab.
        file: PathBuf,
        /// Where the entry begins.
        offset: usize,
        /// The field that is wrong.
        reason: &'static str,
    },
    /// The keytab has no entries.
    #[error("keytab {}: has no keys", file.display())]
    Empty {
        /// Path of the keytab.
        file: PathBuf,
    },
    /// The keytab has no key of the principal.
    #[error("keytab {}: has no key of {principal}; it has keys of {}", file.display(), List(found))]
    NoPrincipal {
        /// Path of the keytab.
        file: PathBuf,
        /// The wanted principal.
        principal: String,
        /// All principals of the keytab.
        found: Vec<String>,
    },
}

/// Lists the first names and the number of the others.
struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = self.0.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>();
        f.write_str(&listed.join(", "))?;
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Keytab {
    /// Reads a keytab of at most 4 MiB. The path may begin with `FILE:`.
    pub fn read(file: &Path) -> Result<Self, KeytabError> {
        let file = without_type(file).to_owned();
        let content = match read_regular(&file) {
            Ok(content) => content,
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Err(KeytabError::Missing { file });
            }
            Err(source) => return Err(KeytabError::NotReadable { file, source }),
        };
        match parser::principals(&content) {
            Ok(principals) if principals.is_empty() => Err(KeytabError::Empty { file }),
            Ok(principals) => Ok(Self { file, principals }),
            Err(parser::ParseError::Version(reason)) => {
                Err(KeytabError::NotKeytab { file, reason })
            }
            Err(parser::ParseError::Entry { offset, reason }) => {
                Err(KeytabError::Damaged { file, offset, reason })
            }
        }
    }

    /// Path without a type before it.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The principals with their realms, each once, in the order of the keytab. Special characters are escaped as
    /// Kerberos does.
    #[must_use]
    pub fn principals(&self) -> &[String] {
        &self.principals
    }

    /// Returns the first principal: the one that is used when none is named.
    pub fn first(&self) -> Result<&str, KeytabError> {
        let first = self.principals.first();
        first.map(String::as_str).ok_or_else(|| KeytabError::Empty { file: self.file.clone() })
    }

    /// Checks that the keytab has a key of a principal. A principal without a realm may have any realm.
    pub fn find(&self, principal: &str) -> Result<&str, KeytabError> {
        let found = self.principals.iter().find(|entry| {
            *entry == principal
                || realm_at(principal).is_none()
                    && realm_at(entry).and_then(|at| entry.get(..at)) == Some(principal)
        });
        found.map(String::as_str).ok_or_else(|| KeytabError::NoPrincipal {
            file: self.file.clone(),
            principal: principal.to_owned(),
            found: self.principals.clone(),
        })
    }
}

fn without_type(file: &Path) -> &Path {
    file.to_str().and_then(|text| text.strip_prefix("FILE:")).map_or(file, Path::new)
}

/// Reads a regular file; a pipe would block.
fn read_regular(file: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(file)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    File::open(file)?.take(MAX_SIZE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SIZE {
        let size = metadata.len();
        return Err(io::Error::other(format!("it has {size} bytes; the limit is {MAX_SIZE}")));
    }
    Ok(content)
}

/// Position of the `@` before the realm.
fn realm_at(principal: &str) -> Option<usize> {
    let mut escaped = false;
    principal.char_indices().find_map(|(at, c)| {
        let is_separator = c == '@' && !escaped;
        escaped = c == '\\' && !escaped;
        is_separator.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;

    use super::{
        parser::tests::{entry, keytab},
        *,
    };

    fn written(content: &[u8]) -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.keytab");
        fs::write(&file, content).expect("write");
        (directory, file)
    }

    #[track_caller]
    fn failure(content: &[u8]) -> String {
        let (_directory, file) = written(content);
        let text = Keytab::read(&file).expect_err("an error").to_string();
        text.replace(&file.display().to_string(), "F")
    }

    #[test]
    fn each_fault_has_its_text() {
        assert_eq!(failure(b""), "keytab F: not a keytab: the file is empty");
        assert_eq!(
            failure(b"[libdefaults]"),
            "keytab F: not a keytab: it begins with 5b 6c instead of 05 02"
        );
        assert_eq!(failure(&[5, 2]), "keytab F: has no keys");
        let mut cut = keytab(&[entry("R", &["a"], 1)]);
        cut.pop();
        assert_eq!(
            failure(&cut),
            "keytab F: the entry at byte 2 is damaged: it is longer than the file"
        );
    }

    #[test]
    fn faults_of_the_file_have_their_texts() {
        let (directory, _file) = written(b"");
        let missing = directory.path().join("missing");
        let text = Keytab::read(&missing).expect_err("an error").to_string();
        assert_eq!(text, format!("keytab {}: the file does not exist", missing.display()));
        let text = Keytab::read(directory.path()).expect_err("an error").to_string();
        assert!(text.ends_with("cannot be read: not a regular file"), "{text}");
        let looped = directory.path().join("loop");
        symlink(&looped, &looped).expect("a link");
        let error = Keytab::read(&looped).expect_err("an error");
        assert!(matches!(error, KeytabError::NotReadable { .. }), "{error}");
        let large = directory.path().join("large");
        File::create(&large).and_then(|f| f.set_len(MAX_SIZE + 1)).expect("a file");
        let text = Keytab::read(&large).expect_err("an error").to_string();
        assert!(text.ends_with("it has 4194305 bytes; the limit is 4194304"), "{text}");
    }

    #[test]
    fn principals_are_found_with_and_without_realm() {
        let entries = [entry("A.B", &["tsdb"], 1), entry("A.B", &["hbase", "h"], 2)];
        let (_directory, file) = written(&keytab(&entries));
        let keytab = Keytab::read(&Path::new("FILE:").join(&file)).or_else(|_| Keytab::read(&file));
        let keytab = keytab.expect("a keytab");
        assert_eq!(keytab.first().expect("an entry"), "tsdb@A.B");
        for (wanted, found) in [
            ("tsdb", Some("tsdb@A.B")),
            ("hbase/h@A.B", Some("hbase/h@A.B")),
            ("hbase/h", Some("hbase/h@A.B")),
            ("hbase", None),
            ("tsdb@OTHER", None),
            ("tsdb@A.B@A.B", None),
            ("", None),
        ] {
            assert_eq!(keytab.find(wanted).ok(), found, "{wanted}");
        }
    }

    #[test]
    fn a_type_before_the_path_is_removed() {
        let (_directory, file) = written(&keytab(&[entry("R", &["a"], 1)]));
        let keytab = Keytab::read(Path::new(&format!("FILE:{}", file.display())));
        assert_eq!(keytab.expect("a keytab").file(), file);
    }

    #[test]
    fn at_most_five_principals_are_listed() {
        let entries: Vec<Vec<u8>> = (0..7).map(|i| entry("R", &[&format!("p{i}")], 1)).collect();
        let (_directory, file) = written(&keytab(&entries));
        let keytab = Keytab::read(&file).expect("a keytab");
        let text = keytab.find("other@R").expect_err("an error").to_string();
        let list = "has no key of other@R; it has keys of p0@R, p1@R, p2@R, p3@R, p4@R and 2 more";
        assert!(text.ends_with(list), "{text}");
    }
}
