//! A text file that is read at the start and read again while the daemon runs.
//!
//! At the start an invalid file is an error. Later it is reported, and the former content stays in force: an editor
//! that saves in two steps must not remove users, rules or points. The parsers of the contents are elsewhere.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use tsd_engine::FileProblems;

use crate::output::utc;

/// Maximum size of a file, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Permission bit that lets every user write a file.
const WRITABLE_BY_ALL: u32 = 0o002;
/// Interval between two reads of a file.
const PERIOD: Duration = Duration::from_secs(10);

/// A file, its content at the last read, and its purpose.
#[derive(Clone, Debug)]
pub struct FollowedFile {
    path: PathBuf,
    /// Name of the content, for the log.
    what: &'static str,
    /// The content, valid or not.
    text: String,
    /// When the content in force was read.
    in_force_since: Timestamp,
    /// Why the file is not in force; `None` if it is.
    problem: Option<String>,
    period: Duration,
}

/// The task that follows a file; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct FileFollower {
    read_again: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowedFileError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is too large.
    #[error("the file is larger than the limit of {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// Every user of this machine can change the file.
    #[error(
        "every user of this machine can write the file (mode {mode:04o}); remove that permission (chmod o-w)"
    )]
    WorldWritable {
        /// The permission bits.
        mode: u32,
    },
    /// Its content is not valid.
    #[error("{0}")]
    Invalid(String),
}

impl FollowedFile {
    /// Reads and parses the file.
    pub(crate) fn open<T, E: Display>(
        path: &Path,
        what: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<(Self, T), FollowedFileError> {
        let text = read(path)?;
        let content = parse(&text).map_err(|e| FollowedFileError::Invalid(e.to_string()))?;
        let (path, in_force_since) = (path.to_owned(), Timestamp::now());
        let file = Self { path, what, text, in_force_since, problem: None, period: PERIOD };
        Ok((file, content))
    }

    /// Sets the interval between two reads, which is 10 seconds by default.
    pub(crate) const fn with_period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Applies the content whenever it changes. Reads the file once per interval, and on
    /// [`FileFollower::read_again`]. If an invalid file keeps the former content in force, the reason goes to
    /// `problems`, for the health of the daemon.
    pub(crate) fn follow<T, E: Display>(
        mut self,
        problems: FileProblems,
        parse: impl Fn(&str) -> Result<T, E> + Send + 'static,
        apply: impl Fn(T) + Send + 'static,
    ) -> FileFollower {
        problems.set(self.what, None);
        let read_again = Arc::new(Notify::new());
        let notified = Arc::clone(&read_again);
        let task = async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(self.period) => {}
                    () = notified.notified() => {}
                }
                let path = self.path.clone();
                // An error here is a panic or a shutdown of the runtime.
                let Ok(text) = tokio::task::spawn_blocking(move || read(&path)).await else {
                    return;
                };
                let what = self.what;
                match self.change(text, &parse) {
                    None => {}
                    Some(Ok(content)) => {
                        apply(content);
                        problems.set(what, None);
                    }
                    Some(Err(problem)) => problems.set(what, Some(problem.to_owned())),
                }
            }
        };
        FileFollower { read_again, _task: AbortOnDropHandle::new(tokio::spawn(task)) }
    }

    /// The content to apply after a read; `None` if it is in force already.
    fn change<T, E: Display>(
        &mut self,
        text: Result<String, FollowedFileError>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Result<T, &str>> {
        let (file, what) = (self.path.display(), self.what);
        let content = match text {
            Ok(text) if text == self.text && self.problem.is_none() => return None,
            Ok(text) => {
                let content = parse(&text).map_err(|error| error.to_string());
                self.text = text;
                content
            }
            Err(error) => Err(error.to_string()),
        };
        match content {
            Ok(content) => {
                tracing::info!(%file, "{what} replaced");
                (self.problem, self.in_force_since) = (None, Timestamp::now());
                Some(Ok(content))
            }
            Err(error) => {
                let since = utc(self.in_force_since);
                let problem = format!(
                    "the file of {what} {file} is invalid; they are unchanged since {since}: {error}"
                );
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        %file, %error, since,
                        "the file of {what} is invalid; they are unchanged"
                    );
                }
                Some(Err(self.problem.insert(problem)))
            }
        }
    }
}

impl FileFollower {
    /// Reads the file now.
    pub(crate) fn read_again(&self) {
        self.read_again.notify_one();
    }
}

/// Reads a file as a daemon does.
pub(crate) fn read(path: &Path) -> Result<String, FollowedFileError> {
    let mut text = String::new();
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & WRITABLE_BY_ALL != 0 {
        return Err(FollowedFileError::WorldWritable { mode: mode & 0o7777 });
    }
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(FollowedFileError::TooLarge);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use parking_lot::Mutex;
    use std::{fs, num::ParseIntError};

    use super::*;

    fn parse(text: &str) -> Result<i32, ParseIntError> {
        text.trim().parse()
    }

    #[tokio::test]
    async fn a_changed_file_is_applied_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers");
        assert!(FollowedFile::open(&path, "numbers", parse).is_err());
        fs::write(&path, "x").unwrap();
        let error = FollowedFile::open(&path, "numbers", parse).unwrap_err();
        assert_eq!(error.to_string(), "invalid digit found in string");
        fs::write(&path, "1").unwrap();
        let (mut file, first) = FollowedFile::open(&path, "numbers", parse).unwrap();
        assert_eq!(first, 1);
        assert_eq!(file.change(read(&path), parse), None, "the same");
        for broken in [Ok("x".to_owned()), read(directory.path())] {
            let problem = file.change(broken, parse).unwrap().unwrap_err();
            assert!(problem.contains("is invalid; they are unchanged"), "{problem}");
        }
        // The file has its former content again.
        assert_eq!(file.change(Ok("1".to_owned()), parse), Some(Ok(1)));
        assert_eq!(file.change(Ok("1".to_owned()), parse), None);
        let seen = Arc::new(Mutex::new(0));
        let applied = Arc::clone(&seen);
        let file = file.with_period(Duration::from_hours(24));
        let problems = FileProblems::default();
        let follower = file.follow(problems.clone(), parse, move |number| *applied.lock() = number);
        fs::write(&path, "2").unwrap();
        follower.read_again();
        while *seen.lock() != 2 {
            tokio::task::yield_now().await;
        }
        // Issue 37: an unreadable file is a problem until it can be read again.
        let has_problem = async |expected: &str| {
            follower.read_again();
            loop {
                let found = problems.list().pop().unwrap_or_default();
                if found.contains(expected) && found.is_empty() == expected.is_empty() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        fs::write(&path, "x").unwrap();
        has_problem("numbers is invalid; they are unchanged since 20").await;
        fs::write(&path, "3").unwrap();
        has_problem("").await;
        assert_eq!(*seen.lock(), 3);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        has_problem("every user of this machine can write the file (mode 0666)").await;
        fs::remove_file(&path).unwrap();
        has_problem("the file cannot be read: No such file").await;
        fs::write(&path, "4").unwrap();
        has_problem("").await;
        assert_eq!(*seen.lock(), 4);
    }

    #[tokio::test]
    async fn a_file_is_looked_at_every_period() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers");
        fs::write(&path, "1").unwrap();
        let (file, _) = FollowedFile::open(&path, "numbers", parse).unwrap();
        let (changed, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let _follower = file.with_period(Duration::from_millis(1)).follow(
            FileProblems::default(),
            parse,
            move |number| changed.send(number).unwrap(),
        );
        fs::write(&path, "2").unwrap();
        assert_eq!(seen.recv().await, Some(2));
    }
}
