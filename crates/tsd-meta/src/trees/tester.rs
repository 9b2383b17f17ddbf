//! Tests the rules of a tree on stored series, without writing.

use tsd_model::{SeriesMeta, Tree, UidKind};

use super::{
    TreeError, TreePlacement, Trees,
    builder::TreeBuilder,
    rule_match::TestMessages,
    series::{TreeName, TreeSeries},
};
use crate::meta_objects::MetaError;

/// The rules of a tree, to test them on series.
#[derive(Debug)]
pub struct TreeTester<'t> {
    trees: &'t Trees,
    builder: TreeBuilder,
}

/// Result of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum TestedSeries {
    /// The series has no TSMeta.
    NoMeta,
    /// A UID of the series has no name.
    NoName {
        /// Kind of the UID.
        kind: UidKind,
        /// Its bytes.
        uid: Vec<u8>,
    },
    /// The rules were applied.
    Tested {
        /// The series.
        meta: Box<SeriesMeta>,
        /// Its place in the tree.
        placement: TreePlacement,
        /// Messages of the rules, in OpenTSDB's words.
        messages: Vec<String>,
        /// True if the tree would not store it.
        is_rejected: bool,
    },
}

impl Trees {
    /// Compiles the rules of a tree to test them.
    pub fn tester(&self, tree: &Tree) -> Result<TreeTester<'_>, TreeError> {
        Ok(TreeTester { trees: self, builder: TreeBuilder::try_new(tree)? })
    }
}

impl TreeTester<'_> {
    /// Applies the rules to a series.
    pub async fn test(&self, tsuid: &[u8]) -> Result<TestedSeries, TreeError> {
        let meta = match self.trees.meta.series_meta(tsuid).await {
            Ok(Some(meta)) => meta,
            Ok(None) => return Ok(TestedSeries::NoMeta),
            Err(MetaError::NoSuchUid { kind, uid }) => {
                return Ok(TestedSeries::NoName { kind, uid });
            }
            Err(error) => return Err(error.into()),
        };
        let mut messages = TestMessages::collected();
        let placement = self.builder.place(&series_of(&meta), &mut messages)?;
        let is_rejected = self.builder.rejects(&placement);
        let messages = messages.into_list();
        Ok(TestedSeries::Tested { meta: Box::new(meta), placement, messages, is_rejected })
    }
}

fn series_of(meta: &SeriesMeta) -> TreeSeries {
    let name = |named: &tsd_model::NamedUidMeta| TreeName {
        name: named.name.clone(),
        custom: named.meta.custom.clone(),
    };
    let pairs = meta.tags.chunks_exact(2).filter_map(|pair| match pair {
        [tagk, tagv] => Some((name(tagk), name(tagv))),
        _ => None,
    });
    TreeSeries { tsuid: meta.meta.tsuid.clone(), metric: name(&meta.metric), tags: pairs.collect() }
}
