//! Names of tables.

use std::{fmt, str::FromStr};

use bytes::Bytes;
use hbase_rs_protobuf as pb;

/// Namespace of tables that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// A table, with its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// `name`, or `namespace:name` outside the default namespace: as it stands in region names.
    text: Bytes,
    /// Bytes of the namespace in front, without the colon; 0 for the default one.
    namespace: usize,
}

impl TableName {
    /// The table that knows where all regions are.
    #[must_use]
    pub const fn meta() -> Self {
        Self { text: Bytes::from_static(b"hbase:meta"), namespace: 5 }
    }

    /// Reads the message.
    ///
    /// # Errors
    ///
    /// When the name is none.
    pub fn from_message(message: &pb::TableName) -> Result<Self, TableNameError> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        format!("{}:{}", text(&message.namespace), text(&message.qualifier)).parse()
    }

    /// The same as a message.
    #[must_use]
    pub fn to_message(&self) -> pb::TableName {
        pb::TableName {
            namespace: self.namespace(),
            qualifier: match self.namespace {
                0 => self.text.clone(),
                length => self.text.slice(length + 1..),
            },
        }
    }

    /// The name as region names begin.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.text
    }

    /// Whether the table belongs to HBase itself.
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

    /// Reads `name` or `namespace:name`; both forms of the default namespace are one table.
    fn from_str(text: &str) -> Result<Self, TableNameError> {
        let (namespace, name) = text.split_once(':').unwrap_or((DEFAULT_NAMESPACE, text));
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let wrong = || TableNameError(text.to_owned());
        if namespace.is_empty() || !namespace.bytes().all(legal) {
            return Err(wrong());
        }
        let name_legal = |byte: u8| legal(byte) || byte == b'-' || byte == b'.';
        if name.is_empty() || name.starts_with(['-', '.']) || !name.bytes().all(name_legal) {
            return Err(wrong());
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

/// Text that names no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of a table")]
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
    fn the_default_namespace_is_not_written() {
        check("tsdb-uid", Some(("tsdb-uid", "default", "tsdb-uid")));
        check("default:tsdb", Some(("tsdb", "default", "tsdb")));
        check("prod:tsdb", Some(("prod:tsdb", "prod", "tsdb")));
        check("hbase:meta", Some(("hbase:meta", "hbase", "meta")));
    }

    #[test]
    fn names_that_would_break_region_names_are_refused() {
        for text in ["", ":", "a:", ":a", "a,b", "a b", ".hidden", "-x", "a:b:c", "p-q:a", "ä"] {
            check(text, None);
        }
    }

    #[test]
    fn meta_is_the_table_of_that_name() {
        assert_eq!(TableName::meta(), "hbase:meta".parse().unwrap());
        assert!(TableName::meta().is_system());
        assert!(!"tsdb".parse::<TableName>().unwrap().is_system());
    }
}
