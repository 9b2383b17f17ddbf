//! The versions of HBase that a cluster can run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A version of HBase, the newest of its line whose jars are complete.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub enum HBaseVersion {
    /// 2.4.18.
    V2_4,
    /// 2.5.13-hadoop3.
    V2_5,
    /// 2.6.4-hadoop3.
    #[default]
    V2_6,
    /// 3.0.0-alpha-4.
    V3_0,
}

impl HBaseVersion {
    /// All versions.
    pub const ALL: [Self; 4] = [Self::V2_4, Self::V2_5, Self::V2_6, Self::V3_0];

    /// The version as its jars have it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::V2_4 => "2.4.18",
            Self::V2_5 => "2.5.13-hadoop3",
            Self::V2_6 => "2.6.4-hadoop3",
            Self::V3_0 => "3.0.0-alpha-4",
        }
    }

    /// True if masters and region servers can use TLS.
    #[must_use]
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::V2_6 | Self::V3_0)
    }

    /// True if the ZooKeeper among its jars can close sessions without SASL, and read PEM files.
    #[must_use]
    pub const fn has_recent_zookeeper(self) -> bool {
        !matches!(self, Self::V3_0)
    }
}

impl fmt::Display for HBaseVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

/// A text that is not a version of HBase with a list of jars.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not one of 2.4.18, 2.5.13-hadoop3, 2.6.4-hadoop3, 3.0.0-alpha-4, nor their 2.4, 2.5, 2.6, 3.0"
)]
pub struct VersionError(String);

impl FromStr for HBaseVersion {
    type Err = VersionError;

    /// Parses a version or its first two numbers.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let named =
            |version: &Self| version.text() == text || version.text().get(..3) == Some(text);
        Self::ALL.into_iter().find(named).ok_or_else(|| VersionError(text.to_owned()))
    }
}

impl From<HBaseVersion> for String {
    fn from(version: HBaseVersion) -> Self {
        version.text().to_owned()
    }
}

impl TryFrom<String> for HBaseVersion {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_by_text_and_line() {
        for version in HBaseVersion::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert_eq!("2.5".parse(), Ok(HBaseVersion::V2_5));
        assert_eq!("3.0".parse(), Ok(HBaseVersion::V3_0));
        for text in ["", "2", "2.6.5", "2.7"] {
            assert_eq!(text.parse::<HBaseVersion>(), Err(VersionError(text.to_owned())));
        }
    }
}
