//! A text file that is read at the start and read again while the daemon runs, or several files that are valid only
//! together, such as a certificate and its key.
//!
//! At the start an invalid file is an error. Later it is reported, and the former content stays in force: an editor
//! that saves in two steps must not remove users, rules or points. The parsers of the contents are elsewhere.

use std::{
    fmt::{self, Display},
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
/// Permission bit that lets every user read a file.
const READABLE_BY_ALL: u32 = 0o004;
/// Interval between two reads of a file.
const PERIOD: Duration = Duration::from_secs(10);

/// One or several files, their content at the last read, and their purpose.
#[derive(Clone)]
pub struct FollowedFile {
    paths: Vec<FollowedPath>,
    /// Name of the content, for the log.
    what: &'static str,
    /// The content of each file, valid or not.
    texts: Vec<String>,
    /// True if unchanged content may become invalid with time.
    can_expire: bool,
    /// When the content in force was read.
    in_force_since: Timestamp,
    /// Why the file is not in force; `None` if it is.
    problem: Option<String>,
    period: Duration,
}

/// The path of a file.
#[derive(Clone, Debug)]
pub(crate) struct FollowedPath {
    path: PathBuf,
    /// True if only some users of the machine may read the file.
    is_secret: bool,
}

/// Why files cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenFilesError<E> {
    /// A file cannot be read.
    Read {
        /// Number of the file, from 0.
        at: usize,
        /// The reason.
        error: FollowedFileError,
    },
    /// The contents are not valid.
    Parse(E),
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
    /// Every user of this machine can read a secret.
    #[error(
        "every user of this machine can read the file (mode {mode:04o}); remove that permission (chmod o-r)"
    )]
    WorldReadable {
        /// The permission bits.
        mode: u32,
    },
    /// Its content is not valid.
    #[error("{0}")]
    Invalid(String),
}

impl fmt::Debug for FollowedFile {
    /// Hides the contents, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowedFile").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl FollowedPath {
    /// A file that every user of the machine may read.
    pub(crate) fn public(path: &Path) -> Self {
        Self { path: path.to_owned(), is_secret: false }
    }

    /// A file with a secret.
    pub(crate) fn secret(path: &Path) -> Self {
        Self { path: path.to_owned(), is_secret: true }
    }
}

impl FollowedFile {
    /// Reads and parses the file.
    pub(crate) fn open<T, E: Display>(
        path: &Path,
        what: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<(Self, T), FollowedFileError> {
        let opened =
            Self::open_all(vec![FollowedPath::public(path)], what, |texts| parse(only(texts)));
        opened.map_err(|error| match error {
            OpenFilesError::Read { error, .. } => error,
            OpenFilesError::Parse(error) => FollowedFileError::Invalid(error.to_string()),
        })
    }

    /// Reads the files and parses them together.
    pub(crate) fn open_all<T, E>(
        paths: Vec<FollowedPath>,
        what: &'static str,
        parse: impl FnOnce(&[String]) -> Result<T, E>,
    ) -> Result<(Self, T), OpenFilesError<E>> {
        let texts = read_all(&paths).map_err(|(at, error)| OpenFilesError::Read { at, error })?;
        let content = parse(&texts).map_err(OpenFilesError::Parse)?;
        let file = Self {
            paths,
            what,
            texts,
            can_expire: false,
            in_force_since: Timestamp::now(),
            problem: None,
            period: PERIOD,
        };
        Ok((file, content))
    }

    /// Parses the content at each read, since it may become invalid with time.
    pub(crate) const fn that_expires(mut self) -> Self {
        self.can_expire = true;
        self
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
        self,
        problems: FileProblems,
        parse: impl Fn(&str) -> Result<T, E> + Send + 'static,
        apply: impl Fn(T) + Send + 'static,
    ) -> FileFollower {
        self.follow_all(problems, move |texts| parse(only(texts)), apply)
    }

    /// As [`Self::follow`], for several files.
    pub(crate) fn follow_all<T, E: Display>(
        mut self,
        problems: FileProblems,
        parse: impl Fn(&[String]) -> Result<T, E> + Send + 'static,
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
                let paths = self.paths.clone();
                // An error here is a panic or a shutdown of the runtime.
                let Ok(texts) = tokio::task::spawn_blocking(move || read_all(&paths)).await else {
                    return;
                };
                let what = self.what;
                match self.change(texts, &parse) {
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
        texts: Result<Vec<String>, (usize, FollowedFileError)>,
        parse: impl Fn(&[String]) -> Result<T, E>,
    ) -> Option<Result<T, &str>> {
        let what = self.what;
        let names: Vec<_> = self.paths.iter().map(|file| file.path.display().to_string()).collect();
        let file = names.join(", ");
        let content = match texts {
            Ok(texts) => {
                let is_in_force = texts == self.texts && self.problem.is_none();
                if is_in_force && !self.can_expire {
                    return None;
                }
                let content = parse(&texts).map_err(|error| error.to_string());
                if is_in_force && content.is_ok() {
                    return None;
                }
                self.texts = texts;
                content
            }
            Err((at, error)) => Err(match names.get(at) {
                Some(name) if names.len() > 1 => format!("{name}: {error}"),
                _ => error.to_string(),
            }),
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

/// The content of a single file.
fn only(texts: &[String]) -> &str {
    texts.first().map_or("", String::as_str)
}

/// Reads the files. An error has the number of its file.
fn read_all(paths: &[FollowedPath]) -> Result<Vec<String>, (usize, FollowedFileError)> {
    let read = |(at, file)| read_followed(file).map_err(|error| (at, error));
    paths.iter().enumerate().map(read).collect()
}

/// Reads a file as a daemon does.
pub(crate) fn read(path: &Path) -> Result<String, FollowedFileError> {
    read_followed(&FollowedPath { path: path.to_owned(), is_secret: false })
}

fn read_followed(followed: &FollowedPath) -> Result<String, FollowedFileError> {
    let mut text = String::new();
    let file = File::open(&followed.path)?;
    let mode = file.metadata()?.permissions().mode();
    if followed.is_secret && mode & READABLE_BY_ALL != 0 {
        return Err(FollowedFileError::WorldReadable { mode: mode & 0o7777 });
    }
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
        let parse_all = |texts: &[String]| parse(only(texts));
        let read = |path: &Path| read_all(&[FollowedPath::public(path)]);
        let text = |text: &str| Ok(vec![text.to_owned()]);
        assert_eq!(file.change(read(&path), parse_all), None, "the same");
        for broken in [text("x"), read(directory.path())] {
            let problem = file.change(broken, parse_all).unwrap().unwrap_err();
            assert!(problem.contains("is invalid; they are unchanged"), "{problem}");
        }
        // The file has its former content again.
        assert_eq!(file.change(text("1"), parse_all), Some(Ok(1)));
        assert_eq!(file.change(text("1"), parse_all), None);
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

    #[test]
    fn files_are_parsed_together_and_may_expire() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let paths = || vec![FollowedPath::public(&one), FollowedPath::secret(&two)];
        let sum = |texts: &[String]| texts.iter().map(|text| parse(text)).sum::<Result<i32, _>>();
        fs::write(&one, "1").unwrap();
        let missing = FollowedFile::open_all(paths(), "sums", sum).unwrap_err();
        assert!(matches!(missing, OpenFilesError::Read { at: 1, .. }), "{missing:?}");
        fs::write(&two, "2").unwrap();
        fs::set_permissions(&two, fs::Permissions::from_mode(0o644)).unwrap();
        let OpenFilesError::Read { at: 1, error } =
            FollowedFile::open_all(paths(), "sums", sum).unwrap_err()
        else {
            panic!("a secret that everybody can read");
        };
        assert!(error.to_string().contains("can read the file (mode 0644)"), "{error}");
        fs::set_permissions(&two, fs::Permissions::from_mode(0o640)).unwrap();
        let (file, first) = FollowedFile::open_all(paths(), "sums", sum).unwrap();
        assert_eq!(first, 3);
        let mut file = file.that_expires();
        let read = || read_all(&paths());
        assert_eq!(file.change(read(), sum), None);
        // The same content is no longer valid.
        let expired = |_: &[String]| Err::<i32, _>("it has expired");
        let problem = file.change(read(), expired).unwrap().unwrap_err();
        assert!(problem.contains("one, ") && problem.ends_with("it has expired"), "{problem}");
        assert_eq!(file.change(read(), sum), Some(Ok(3)));
        fs::remove_file(&two).unwrap();
        let problem = file.change(read(), sum).unwrap().unwrap_err();
        assert!(problem.contains("two: the file cannot be read"), "{problem}");
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
