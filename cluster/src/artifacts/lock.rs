//! Parser of the lists of jars that `lock/make.sh` writes.

use crate::version::HBaseVersion;

/// A class path of jars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JarSet {
    /// HBase and ZooKeeper.
    HBase(HBaseVersion),
    /// OpenTSDB.
    OpenTsdb,
}

impl JarSet {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::HBase(_) => "HBase",
            Self::OpenTsdb => "OpenTSDB",
        }
    }

    /// Returns the jars in the order of the class path.
    pub(crate) fn artifacts(self) -> Result<Vec<Artifact>, LockError> {
        parse(match self {
            Self::HBase(HBaseVersion::V2_4) => include_str!("../../lock/hbase-2.4.18.lock"),
            Self::HBase(HBaseVersion::V2_5) => include_str!("../../lock/hbase-2.5.13-hadoop3.lock"),
            Self::HBase(HBaseVersion::V2_6) => include_str!("../../lock/hbase-2.6.4-hadoop3.lock"),
            Self::HBase(HBaseVersion::V3_0) => include_str!("../../lock/hbase-3.0.0-alpha-4.lock"),
            Self::OpenTsdb => include_str!("../../lock/opentsdb.lock"),
        })
    }
}

/// One jar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// `group:artifact:version`
    pub(crate) name: String,
    /// Checksum, in lower-case hexadecimal digits.
    pub(crate) sha256: String,
    /// Path in a repository.
    pub(crate) path: String,
}

/// A line that does not describe a jar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not `group:artifact:version sha256 path`")]
pub struct LockError {
    /// Number of the line.
    pub line: usize,
}

fn parse(text: &str) -> Result<Vec<Artifact>, LockError> {
    let read = |(at, line)| artifact(line).ok_or(LockError { line: at + 1 });
    text.lines().enumerate().map(read).collect()
}

fn artifact(line: &str) -> Option<Artifact> {
    let mut words = line.split(' ');
    let (name, sha256, path) = (words.next()?, words.next()?, words.next()?);
    let digits =
        sha256.len() == 64 && sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    // The path is used in a file name and in a URL.
    let plain = path.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._".contains(&byte));
    let named = name.split(':').count() == 3;
    (words.next().is_none() && digits && plain && named).then(|| Artifact {
        name: name.to_owned(),
        sha256: sha256.to_owned(),
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::collections::HashSet;

    use super::*;

    #[test]
    fn committed_lists_contain_each_jar_once() {
        let zookeeper = "org.apache.zookeeper:zookeeper:3.8.4".to_owned();
        let mut mains = vec![
            (JarSet::HBase(HBaseVersion::V2_6), zookeeper),
            (JarSet::OpenTsdb, "net.opentsdb:opentsdb:2.4.1".to_owned()),
        ];
        for version in HBaseVersion::ALL {
            let main = format!("org.apache.hbase:hbase-server:{version}");
            mains.push((JarSet::HBase(version), main));
        }
        for (set, main) in mains {
            let jars = set.artifacts().unwrap();
            assert!(jars.iter().any(|jar| jar.name == main), "{main}");
            let paths: HashSet<_> = jars.iter().map(|jar| &jar.path).collect();
            assert_eq!(paths.len(), jars.len());
        }
    }

    #[test]
    fn a_class_path_has_one_logging_backend() {
        let back_ends = ["slf4j-reload4j", "slf4j-log4j12", "log4j-slf4j-impl", "logback-classic"];
        for set in HBaseVersion::ALL.map(JarSet::HBase).into_iter().chain([JarSet::OpenTsdb]) {
            let jars = set.artifacts().unwrap();
            let found =
                jars.iter().filter(|jar| back_ends.iter().any(|name| jar.name.contains(name)));
            assert_eq!(found.count(), 1);
        }
    }

    #[test]
    fn a_line_has_name_checksum_and_path() {
        let sum = "0123456789abcdef".repeat(4);
        let line = format!("g.h:a:1 {sum} g/h/a/1/a-1.jar");
        let jar = Artifact {
            name: "g.h:a:1".into(),
            sha256: sum.clone(),
            path: "g/h/a/1/a-1.jar".into(),
        };
        assert_eq!(parse(&line), Ok(vec![jar]));
        for wrong in [
            String::new(),
            format!("{line} more"),
            format!("g:a {sum} g/a-1.jar"),
            format!("g:a:1 {} g/a-1.jar", sum.to_uppercase()),
            format!("g:a:1 {sum}0 g/a-1.jar"),
            format!("g:a:1 {sum} ../a-1.jar"),
            format!("g:a:1 {sum} /g/a-1.jar"),
            format!("g:a:1 {sum} g/a\"1.jar"),
        ] {
            assert_eq!(parse(&format!("{line}\n{wrong}\n")), Err(LockError { line: 2 }), "{wrong}");
        }
    }
}
