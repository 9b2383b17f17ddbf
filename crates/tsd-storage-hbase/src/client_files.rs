//! Files that a cluster hands out to its clients: `hbase-site.xml` with `core-site.xml`, JAAS files.
//!
//! They are read as Java reads them, so that the files work unchanged. Two kinds of content are left out: files that
//! another file includes, and options of login modules other than Kerberos's. Errors name file, line and what is
//! expected, because the files come from people who never see this program.

mod jaas;
mod site;

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

pub use self::{
    jaas::{JaasFile, JaasModule, JaasSection},
    site::{SiteProperties, SiteProperty},
};

/// Maximum size of a file, bytes. Files of real clusters have some 100 KiB.
pub const MAX_CLIENT_FILE: u64 = 1 << 20;

/// Finds the value of a variable such as `user.home` or `env.HOME`. `None` if the variable is unknown.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A file of a cluster that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        cause: io::Error,
    },
    /// The file is larger than [`MAX_CLIENT_FILE`].
    #[error("{} is larger than the limit of {MAX_CLIENT_FILE} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The content is not what is expected.
    #[error("{} line {line}: {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What was found and what is expected.
        problem: String,
    },
    /// The directory has no `hbase-site.xml`.
    #[error(
        "{} has no hbase-site.xml; expected that file, or a directory with it and core-site.xml",
        path.display()
    )]
    NoSiteFile {
        /// The directory.
        path: PathBuf,
    },
    /// The JAAS file does not have the section.
    #[error("{} has no section {section}; it has {existing}", path.display())]
    NoSection {
        /// The file.
        path: PathBuf,
        /// Name of the section.
        section: String,
        /// Names of the sections of the file.
        existing: String,
    },
}

/// Reads a text file of at most [`MAX_CLIENT_FILE`] bytes.
fn read_text(path: &Path) -> Result<String, ClientFileError> {
    let unreadable = |cause| ClientFileError::Unreadable { path: path.to_owned(), cause };
    let file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is not a regular file")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_CLIENT_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_CLIENT_FILE {
        return Err(ClientFileError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        ClientFileError::Invalid {
            path: path.to_owned(),
            line: valid.split(|byte| *byte == b'\n').count(),
            problem: "a byte is not UTF-8; expected a file in UTF-8".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let check = |path: &Path, expected: &str| {
            let error = read_text(path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        };
        check(&directory.path().join("missing"), "No such file");
        check(directory.path(), "not a regular file");
        let large = directory.path().join("large");
        File::create(&large).unwrap().set_len(MAX_CLIENT_FILE + 1).unwrap();
        check(&large, "larger than the limit of 1048576 bytes");
        let latin = directory.path().join("latin");
        fs::write(&latin, b"one\ntwo\nthr\xe9\n").unwrap();
        check(&latin, "line 3: a byte is not UTF-8");
        fs::write(&latin, "three\n").unwrap();
        assert_eq!(read_text(&latin).unwrap(), "three\n");
    }
}
