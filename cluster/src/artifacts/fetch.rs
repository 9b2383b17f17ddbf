//! Finds jars on this machine and downloads missing ones.
//!
//! A jar in Maven's local repository is used in place. Others are downloaded by one `curl`, which uses
//! the machine's proxies and certificates, to temporary names; a file is renamed once its checksum is
//! verified, so that concurrent downloads do not conflict.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::{Artifact, ArtifactError, JarLocations};

/// Interval of progress updates.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the files of all jars in their order, with verified checksums.
pub(crate) fn resolve(
    artifacts: &[Artifact],
    places: &JarLocations,
) -> Result<Vec<PathBuf>, ArtifactError> {
    let found = find_all(artifacts, places);
    let missing: Vec<_> = artifacts
        .iter()
        .zip(&found)
        .filter(|(_, file)| file.is_none())
        .map(|(jar, _)| jar)
        .collect();
    if !missing.is_empty() {
        download(&missing, places)?;
    }
    let file = |(jar, file): (&Artifact, Option<PathBuf>)| {
        file.unwrap_or_else(|| places.cache.join(&jar.path))
    };
    Ok(artifacts.iter().zip(found).map(file).collect())
}

/// Searches the jars with several threads, because checksums take most of the time.
fn find_all(artifacts: &[Artifact], places: &JarLocations) -> Vec<Option<PathBuf>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = artifacts.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let search =
            |jars: &'_ [Artifact]| -> Vec<_> { jars.iter().map(|jar| find(jar, places)).collect() };
        let workers: Vec<_> = artifacts
            .chunks(share)
            .map(|jars| (jars.len(), scope.spawn(move || search(jars))))
            .collect();
        // A thread that panicked found nothing; its jars are downloaded.
        workers
            .into_iter()
            .flat_map(|(count, worker)| worker.join().unwrap_or_else(|_| vec![None; count]))
            .collect()
    })
}

fn find(jar: &Artifact, places: &JarLocations) -> Option<PathBuf> {
    let homes = [Some(&places.cache), places.maven.as_ref()];
    let mut files = homes.into_iter().flatten().map(|home| home.join(&jar.path));
    files.find(|file| checksum(file).is_ok_and(|found| found == jar.sha256))
}

fn checksum(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => hasher.update(chunk.get(..length).unwrap_or_default()),
        }
    }
    Ok(hasher.finalize().iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    }))
}

fn download(missing: &[&Artifact], places: &JarLocations) -> Result<(), ArtifactError> {
    let new = |jar: &Artifact| {
        let mut name = places.cache.join(&jar.path).into_os_string();
        name.push(format!(".{}.new", std::process::id()));
        PathBuf::from(name)
    };
    let outcome = fetch(missing, places, &new).and_then(|()| {
        for jar in missing {
            commit(jar, &new(jar), places)?;
        }
        Ok(())
    });
    if outcome.is_err() {
        for jar in missing {
            let _ = fs::remove_file(new(jar));
        }
    }
    outcome
}

/// Renames a download to its final name if its checksum is right.
fn commit(jar: &Artifact, new: &Path, places: &JarLocations) -> Result<(), ArtifactError> {
    let failed = |source| ArtifactError::Cache { path: new.to_path_buf(), source };
    let found = checksum(new).map_err(failed)?;
    if found != jar.sha256 {
        return Err(ArtifactError::Checksum {
            artifact: jar.name.clone(),
            repository: places.repository.clone(),
            found,
            expected: jar.sha256.clone(),
        });
    }
    fs::rename(new, places.cache.join(&jar.path)).map_err(failed)
}

/// Runs curl with the list of URLs on its standard input.
fn fetch(
    missing: &[&Artifact],
    places: &JarLocations,
    new: &dyn Fn(&Artifact) -> PathBuf,
) -> Result<(), ArtifactError> {
    fs::create_dir_all(&places.cache)
        .map_err(|source| ArtifactError::Cache { path: places.cache.clone(), source })?;
    let mut list = String::new();
    for jar in missing {
        let url = format!("{}/{}", places.repository, jar.path);
        let file = new(jar).display().to_string();
        let _ = writeln!(list, "url = {}\noutput = {}", quoted(&url), quoted(&file));
    }
    let no_curl = |source| ArtifactError::NoCurl { source };
    let mut curl = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--no-progress-meter",
            "--fail",
            "--location",
            "--create-dirs",
        ])
        .args(["--parallel", "--parallel-max", "16", "--retry", "3", "--config", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_curl)?;
    // curl reads the whole list first; its errors stay in the pipe.
    if let Some(mut stdin) = curl.stdin.take() {
        stdin.write_all(list.as_bytes()).map_err(no_curl)?;
    }
    let bar = progress(missing.len());
    let status = loop {
        bar.set_position(missing.iter().filter(|jar| new(jar).exists()).count() as u64);
        match curl.try_wait().map_err(no_curl)? {
            Some(status) => break status,
            None => thread::sleep(POLL_INTERVAL),
        }
    };
    bar.finish_and_clear();
    if status.success() {
        return Ok(());
    }
    let mut output = String::new();
    if let Some(mut stderr) = curl.stderr.take() {
        let _ = stderr.read_to_string(&mut output);
    }
    Err(ArtifactError::Download {
        count: missing.len(),
        repository: places.repository.clone(),
        status,
        output: output.trim().lines().take(10).collect::<Vec<_>>().join("\n"),
    })
}

/// A quoted value of curl's configuration.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A progress bar on a terminal, hidden elsewhere.
fn progress(jars: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("downloading jars {bar:40} {pos}/{len}");
    let bar = ProgressBar::new(jars as u64);
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tempfile::TempDir;

    use super::*;

    /// A repository with one jar, an empty cache and an empty local repository of Maven.
    struct Fixture {
        directory: TempDir,
        places: JarLocations,
        jar: Artifact,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let at = |name: &str| directory.path().join(name);
            let places = JarLocations {
                cache: at("cache"),
                maven: Some(at("maven")),
                repository: format!("file://{}", at("central").display()),
            };
            let jar = Artifact {
                name: "g:a:1".into(),
                sha256: "0163f1eea7894350060624d315234d40c508ab251ba121714e234503045faadd".into(),
                path: "g/a/1/a-1.jar".into(),
            };
            let fixture = Self { directory, places, jar };
            fixture.put("central", "jar");
            fixture
        }

        fn file(&self, home: &str) -> PathBuf {
            self.directory.path().join(home).join(&self.jar.path)
        }

        fn put(&self, home: &str, content: &str) {
            fs::create_dir_all(self.file(home).parent().unwrap()).unwrap();
            fs::write(self.file(home), content).unwrap();
        }

        fn resolve(&self) -> Result<Vec<PathBuf>, ArtifactError> {
            resolve(std::slice::from_ref(&self.jar), &self.places)
        }

        /// Number of files in the cache.
        fn cached(&self) -> usize {
            let home = self.file("cache");
            fs::read_dir(home.parent().unwrap()).map_or(0, Iterator::count)
        }
    }

    #[test]
    fn a_missing_jar_is_downloaded_once() {
        let fixture = Fixture::new();
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("cache")]);
        fs::remove_file(fixture.file("central")).unwrap();
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("cache")]);
        assert_eq!(fixture.cached(), 1);
    }

    #[test]
    fn a_jar_of_maven_is_used_in_place() {
        let fixture = Fixture::new();
        fixture.put("maven", "jar");
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("maven")]);
        assert_eq!(fixture.cached(), 0);
    }

    #[test]
    fn a_damaged_jar_is_downloaded_again() {
        let fixture = Fixture::new();
        for home in ["maven", "cache"] {
            fixture.put(home, "jaR");
        }
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("cache")]);
        assert_eq!(fs::read_to_string(fixture.file("cache")).unwrap(), "jar");
    }

    #[test]
    fn a_wrong_jar_is_an_error_and_not_cached() {
        let fixture = Fixture::new();
        fixture.put("central", "another");
        let error = fixture.resolve().unwrap_err();
        assert!(matches!(&error, ArtifactError::Checksum { artifact, .. } if artifact == "g:a:1"));
        assert!(error.to_string().contains(&fixture.jar.sha256), "{error}");
        assert_eq!(fixture.cached(), 0);
    }

    #[test]
    fn the_error_of_a_missing_jar_names_the_repository() {
        let fixture = Fixture::new();
        fs::remove_file(fixture.file("central")).unwrap();
        let error = fixture.resolve().unwrap_err();
        assert!(matches!(error, ArtifactError::Download { count: 1, .. }), "{error}");
        assert!(error.to_string().contains(&fixture.places.repository), "{error}");
    }
}
