//! The error of a file that another release has written.

use std::{fmt::Display, io};

/// An intact file of a version that this release does not read. It is not damaged: the release that
/// wrote it can read it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {file} has version {version}, this release reads {reads}: start the release that wrote it"
)]
pub struct UnknownVersion {
    what: &'static str,
    file: String,
    version: String,
    reads: String,
}

impl UnknownVersion {
    /// Names the kind of the file, its path, its version, and the readable versions.
    #[must_use]
    pub fn new(
        what: &'static str,
        file: impl Display,
        version: impl Display,
        reads: impl Display,
    ) -> Self {
        let [file, version, reads] = [file.to_string(), version.to_string(), reads.to_string()];
        Self { what, file, version, reads }
    }

    /// The error of a sealed text in `file`, if its first line differs from `line` only in the
    /// version at its end.
    #[must_use]
    pub fn of_text(file: impl Display, text: &str, line: &str) -> Option<Self> {
        let (name, reads) = line.rsplit_once(' ')?;
        let first = text.lines().next().filter(|first| *first != line)?;
        let version = first.strip_prefix(name)?.strip_prefix(' ')?;
        Some(Self::new("store file", file, version, reads))
    }

    /// The path of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl From<UnknownVersion> for io::Error {
    fn from(error: UnknownVersion) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_another_version_is_recognized_by_its_first_line() {
        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            let found = UnknownVersion::of_text("t.tsdb", text, "saltern series 1");
            let shown = found.map(|unknown| unknown.to_string());
            let expected = expected.map(|version| {
                format!(
                    "store file t.tsdb has version {version}, this release reads 1: start the \
                     release that wrote it"
                )
            });
            assert_eq!(shown, expected);
        }
        check("saltern series 2\nkeys 3\n", Some("2"));
        check("saltern series 10", Some("10"));
        check("saltern series 1\nkeys 3\n", None);
        check("saltern retention 2\n", None);
        check("", None);
    }
}
