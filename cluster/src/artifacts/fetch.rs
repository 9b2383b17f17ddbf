//! Jars on this machine, fetched where they are not.
//!
//! A jar that Maven has already is used where it is. The others are fetched by one `curl`, which
//! knows proxies and certificates of the machine, into names of their own; only what has the right
//! checksum gets its real name, so two processes that fetch at once do not meet.

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

use super::{Artifact, ArtifactError, Places};

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Files of all the jars, in their order; each has its checksum.
pub(crate) fn resolve(
    artifacts: &[Artifact],
    places: &Places,
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

/// Looks for the jars with several threads: most of the time goes into checksums.
fn find_all(artifacts: &[Artifact], places: &Places) -> Vec<Option<PathBuf>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = artifacts.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let search =
            |jars: &'_ [Artifact]| -> Vec<_> { jars.iter().map(|jar| find(jar, places)).collect() };
        let workers: Vec<_> = artifacts
            .chunks(share)
            .map(|jars| (jars.len(), scope.spawn(move || search(jars))))
            .collect();
        // A thread that panicked found nothing; what it looked for is fetched.
        workers
            .into_iter()
            .flat_map(|(count, worker)| worker.join().unwrap_or_else(|_| vec![None; count]))
            .collect()
    })
}

fn find(jar: &Artifact, places: &Places) -> Option<PathBuf> {
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

fn download(missing: &[&Artifact], places: &Places) -> Result<(), ArtifactError> {
    let new = |jar: &Artifact| {
        let mut name = places.cache.join(&jar.path).into_os_string();
        name.push(format!(".{}.new", std::process::id()));
        PathBuf::from(name)
    };
    let outcome = fetch(missing, places, &new).and_then(|()| {
        for jar in missing {
            keep(jar, &new(jar), places)?;
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

/// Gives a download its name, if it is what was asked for.
fn keep(jar: &Artifact, new: &Path, places: &Places) -> Result<(), ArtifactError> {
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

/// Runs curl over the list, which goes to its standard input.
fn fetch(
    missing: &[&Artifact],
    places: &Places,
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
    // All the list is read before anything else is done; errors wait in their pipe for us.
    if let Some(mut stdin) = curl.stdin.take() {
        stdin.write_all(list.as_bytes()).map_err(no_curl)?;
    }
    let bar = progress(missing.len());
    let status = loop {
        bar.set_position(missing.iter().filter(|jar| new(jar).exists()).count() as u64);
        match curl.try_wait().map_err(no_curl)? {
            Some(status) => break status,
            None => thread::sleep(LOOK),
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

/// A word of curl's configuration.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A bar of jars on a terminal, nothing elsewhere.
fn progress(jars: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("fetching jars {bar:40} {pos}/{len}");
    let bar = ProgressBar::new(jars as u64);
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tempfile::TempDir;

    use super::*;

    /// A repository, a cache and Maven's own directory; one jar, which the first has.
    struct Fixture {
        directory: TempDir,
        places: Places,
        jar: Artifact,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let at = |name: &str| directory.path().join(name);
            let places = Places {
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

        /// Everything in the cache.
        fn cached(&self) -> usize {
            let home = self.file("cache");
            fs::read_dir(home.parent().unwrap()).map_or(0, Iterator::count)
        }
    }

    #[test]
    fn a_missing_jar_is_fetched_once() {
        let fixture = Fixture::new();
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("cache")]);
        fs::remove_file(fixture.file("central")).unwrap();
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("cache")]);
        assert_eq!(fixture.cached(), 1);
    }

    #[test]
    fn a_jar_of_maven_is_used_where_it_is() {
        let fixture = Fixture::new();
        fixture.put("maven", "jar");
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("maven")]);
        assert_eq!(fixture.cached(), 0);
    }

    #[test]
    fn a_damaged_jar_is_fetched_anew() {
        let fixture = Fixture::new();
        for home in ["maven", "cache"] {
            fixture.put(home, "jaR");
        }
        assert_eq!(fixture.resolve().unwrap(), [fixture.file("cache")]);
        assert_eq!(fs::read_to_string(fixture.file("cache")).unwrap(), "jar");
    }

    #[test]
    fn a_wrong_jar_is_an_error_and_not_kept() {
        let fixture = Fixture::new();
        fixture.put("central", "another");
        let error = fixture.resolve().unwrap_err();
        assert!(matches!(&error, ArtifactError::Checksum { artifact, .. } if artifact == "g:a:1"));
        assert!(error.to_string().contains(&fixture.jar.sha256), "{error}");
        assert_eq!(fixture.cached(), 0);
    }

    #[test]
    fn a_repository_without_the_jar_is_named() {
        let fixture = Fixture::new();
        fs::remove_file(fixture.file("central")).unwrap();
        let error = fixture.resolve().unwrap_err();
        assert!(matches!(error, ArtifactError::Download { count: 1, .. }), "{error}");
        assert!(error.to_string().contains(&fixture.places.repository), "{error}");
    }
}
