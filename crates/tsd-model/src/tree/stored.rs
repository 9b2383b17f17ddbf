//! A stored tree: the definition and the rules of its row.

use std::collections::BTreeMap;

use super::{TreeColumn, TreeDefinition, TreeId, TreeRule};
use crate::{cell::Row, json_object::JsonError};

/// A tree: definition and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Number of the tree.
    pub id: TreeId,
    /// Definition of the tree; the default definition if `is_defined` is false.
    pub definition: TreeDefinition,
    /// True if the row has a definition.
    pub is_defined: bool,
    /// Rules by level and order.
    pub rules: BTreeMap<(u32, u32), TreeRule>,
}

impl Tree {
    /// A tree without rules.
    #[must_use]
    pub const fn new(id: TreeId, definition: TreeDefinition) -> Self {
        Self { id, definition, is_defined: true, rules: BTreeMap::new() }
    }

    /// Decodes the row of a tree. As in OpenTSDB, a row with any cell is a tree. Level, order and
    /// tree of a rule come from its column and row.
    pub fn from_row(id: TreeId, row: &Row) -> Result<Self, JsonError> {
        let mut tree = Self { is_defined: false, ..Self::new(id, TreeDefinition::default()) };
        for cell in &row.cells {
            match TreeColumn::decode(&cell.qualifier) {
                Some(TreeColumn::Definition) => {
                    tree.definition = TreeDefinition::from_json(&cell.value)?;
                    tree.is_defined = true;
                }
                Some(TreeColumn::Rule { level, order }) => {
                    let rule = TreeRule::from_json(&cell.value)?;
                    let rule = TreeRule {
                        level: level.into(),
                        order: order.into(),
                        tree_id: id.number().into(),
                        ..rule
                    };
                    tree.rules.insert((level, order), rule);
                }
                _ => {}
            }
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;

    use super::*;
    use crate::{Cell, Family};

    fn row(cells: &[(TreeColumn, &str)]) -> Row {
        let cells = cells.iter().map(|(column, json)| Cell {
            family: Family::T,
            qualifier: Bytes::from(column.qualifier()),
            value: Bytes::copy_from_slice(json.as_bytes()),
            timestamp_ms: 0,
        });
        Row::from_cells(Bytes::from_static(&[0, 2]), cells.collect())
    }

    #[test]
    fn rules_are_numbered_by_their_columns() {
        let rule = |order| TreeColumn::Rule { level: 1, order };
        let row = row(&[
            (TreeColumn::Branch, "not read"),
            (TreeColumn::Definition, r#"{"name":"T","enabled":true}"#),
            (rule(12), r#"{"type":"METRIC","treeId":9}"#),
            (rule(3), r#"{"type":"tagk","field":"host"}"#),
        ]);
        let tree = Tree::from_row(TreeId::try_new(2).unwrap(), &row).unwrap();
        assert!(tree.is_defined && tree.definition.enabled);
        let rules: Vec<String> = tree.rules.values().map(ToString::to_string).collect();
        assert_eq!(rules, ["[2:1:3:TAGK]", "[2:1:12:METRIC]"]);
    }

    #[test]
    fn a_row_without_a_definition_is_a_tree_with_defaults() {
        let tree = Tree::from_row(TreeId::try_new(1).unwrap(), &row(&[])).unwrap();
        assert!(!tree.is_defined);
        assert_eq!(tree.definition, TreeDefinition::default());
    }
}
