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
