//! Reads of znodes, and the check for HBase's parent znode.

use std::future::Future;

use bytes::Bytes;

use super::DiscoveryError;

/// Maximum number of znodes in an error.
const MAX_LISTED: usize = 20;

/// A session that reads znodes.
pub(super) trait Znodes {
    type Error;

    /// Returns the value of a znode; `None` if it does not exist.
    fn data(
        &mut self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Bytes>, Self::Error>> + Send;

    /// Returns the names of the children of a znode; `None` if it does not exist.
    fn children(
        &mut self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Vec<String>>, Self::Error>> + Send;
}

/// A value, or why it is missing.
pub(super) enum Value {
    Found(Bytes),
    /// HBase has not written it yet.
    Missing,
    /// HBase's parent znode does not exist; there are these others.
    NoRoot {
        existing: Vec<String>,
    },
}

impl Value {
    /// Returns the value, or the error of a lookup of `what` below `root`.
    pub(super) fn found(
        self,
        what: &'static str,
        root: &str,
        quorum: String,
    ) -> Result<Bytes, DiscoveryError> {
        match self {
            Self::Found(value) => Ok(value),
            Self::Missing => Err(DiscoveryError::Unknown { what }),
            Self::NoRoot { existing } => {
                let root = if root.is_empty() { "/" } else { root }.to_owned();
                Err(DiscoveryError::NoRoot { root, quorum, existing })
            }
        }
    }
}

/// Reads the znode `node` of HBase below `root`.
pub(super) async fn read<Z: Znodes + Send>(
    session: &mut Z,
    root: &str,
    node: &str,
) -> Result<Value, Z::Error> {
    if let Some(value) = session.data(&format!("{root}/{node}")).await? {
        return Ok(Value::Found(value));
    }
    // HBase creates the root at its first start, and never removes it.
    let root = if root.is_empty() { "/" } else { root };
    if session.children(root).await?.is_some() {
        return Ok(Value::Missing);
    }
    // The first directory of the path that exists.
    let mut parent = root;
    let children = loop {
        parent = match parent.rfind('/') {
            None | Some(0) => "/",
            Some(end) => parent.get(..end).unwrap_or("/"),
        };
        match session.children(parent).await? {
            Some(children) => break children,
            None if parent != "/" => {}
            None => break Vec::new(),
        }
    };
    let parent = parent.trim_end_matches('/');
    let mut existing: Vec<_> = children.iter().map(|child| format!("{parent}/{child}")).collect();
    existing.sort_by_key(|path| (!path.contains("hbase"), path.clone()));
    existing.truncate(MAX_LISTED);
    Ok(Value::NoRoot { existing })
}
