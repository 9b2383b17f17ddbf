//! Table names with their namespaces.

use std::{fmt, str::FromStr};

use bytes::Bytes;
use hbase_rs_protobuf as pb;

/// Namespace of names without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Name of a table, including its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// `name`, or `namespace:name` outside the default namespace, as in region names.
    text: Bytes,
    /// Length of the namespace prefix without the colon; 0 for the default namespace.
    namespace: usize,
}

impl TableName {
    /// Returns `hbase:meta`, the table of all region locations.
    #[must_use]
    pub const fn meta() -> Self {
        Self { text: Bytes::from_static(b"hbase:meta"), namespace: 5 }
    }

    /// Decodes the message.
    ///
    /// # Errors
    ///
    /// When the name is invalid.
    #[doc(hidden)]
    pub fn from_message(message: &pb::TableName) -> Result<Self, TableNameError> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        format!("{}:{}", text(&message.namespace), text(&message.qualifier)).parse()
    }

    /// Encodes the name as a message.
    #[must_use]
    #[doc(hidden)]
    pub fn to_message(&self) -> pb::TableName {
        pb::TableName {
            namespace: self.namespace(),
            qualifier: match self.namespace {
                0 => self.text.clone(),
                length => self.text.slice(length + 1..),
            },
        }
    }

    /// Returns the name as it appears in region names.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.text
    }

    /// True for tables of HBase's own namespace.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.namespace() == "hbase"
    }

    fn namespace(&self) -> Bytes {
        match self.namespace {
            0 => Bytes::from_static(DEFAULT_NAMESPACE.as_bytes()),
            length => self.text.slice(..length),
        }
    }
}

impl FromStr for TableName {
    type Err = TableNameError;

    /// Parses `name` or `namespace:name`; `default:name` equals `name`.
    fn from_str(text: &str) -> Result<Self, TableNameError> {
        let (namespace, name) = text.split_once(':').unwrap_or((DEFAULT_NAMESPACE, text));
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let invalid = || TableNameError(text.to_owned());
        if namespace.is_empty() || !namespace.bytes().all(is_valid) {
            return Err(invalid());
        }
        let is_valid_in_name = |byte: u8| is_valid(byte) || byte == b'-' || byte == b'.';
        if name.is_empty() || name.starts_with(['-', '.']) || !name.bytes().all(is_valid_in_name) {
            return Err(invalid());
        }
        Ok(match namespace {
            DEFAULT_NAMESPACE => {
                Self { text: Bytes::copy_from_slice(name.as_bytes()), namespace: 0 }
            }
            _ => Self {
                text: Bytes::from(format!("{namespace}:{name}")),
                namespace: namespace.len(),
            },
        })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.text))
    }
}

/// Text that is not a valid table name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid table name")]
pub struct TableNameError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &str, &str)>) {
        let read = text.parse::<TableName>();
        let Some((shown, namespace, qualifier)) = expected else {
            assert!(read.is_err(), "{read:?}");
            return;
        };
        let name = read.unwrap();
        let message = name.to_message();
        assert_eq!(name.to_string(), shown);
        assert_eq!(
            (message.namespace, message.qualifier),
            (namespace.to_owned().into(), qualifier.to_owned().into())
        );
        assert_eq!(TableName::from_message(&name.to_message()).unwrap(), name);
    }

    #[test]
    fn default_namespace_is_omitted() {
        check("tsdb-uid", Some(("tsdb-uid", "default", "tsdb-uid")));
        check("default:tsdb", Some(("tsdb", "default", "tsdb")));
        check("prod:tsdb", Some(("prod:tsdb", "prod", "tsdb")));
        check("hbase:meta", Some(("hbase:meta", "hbase", "meta")));
    }

    #[test]
    fn invalid_names_are_rejected() {
        for text in ["", ":", "a:", ":a", "a,b", "a b", ".hidden", "-x", "a:b:c", "p-q:a", "ä"] {
            check(text, None);
        }
    }

    #[test]
    fn meta_is_a_system_table() {
        assert_eq!(TableName::meta(), "hbase:meta".parse().unwrap());
        assert!(TableName::meta().is_system());
        assert!(!"tsdb".parse::<TableName>().unwrap().is_system());
    }
}
