//! Edits and deletes rules of trees.

use std::collections::BTreeMap;

use bytes::Bytes;
use tsd_model::{Family, Row, Tree, TreeColumn, TreeId, TreeRule, TreeRuleEdit};
use tsd_storage::{Column, Delete, StorageExt};

use super::{MAX_ATTEMPTS, TreeError, Trees};

/// Most rules of a tree.
const MAX_RULES: usize = 1_024;
/// Most bytes of a stored rule.
const MAX_RULE_BYTES: usize = 64 << 10;

/// Result of an edit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleEditOutcome {
    /// The rule as stored now.
    Stored(Box<TreeRule>),
    /// The edit changes nothing, so nothing was written.
    Unchanged,
    /// There is no such tree.
    NotFound,
}

impl Trees {
    /// Sets fields of a rule, or replaces it; creates a missing rule.
    pub async fn edit_rule(
        &self,
        id: TreeId,
        edit: &TreeRuleEdit,
        replace: bool,
    ) -> Result<RuleEditOutcome, TreeError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(row) = self.read_row(id).await? else {
                return Ok(RuleEditOutcome::NotFound);
            };
            if edit.is_empty() {
                return Ok(RuleEditOutcome::Unchanged);
            }
            let place = place_of(edit)?;
            let tree = Tree::from_row(id, &row)?;
            let stored = tree.rules.get(&place);
            if stored.is_none() && tree.rules.len() >= MAX_RULES {
                return Err(TreeError::TooMany { what: "rules of a tree", most: MAX_RULES });
            }
            let Some(rule) = edit.merged(stored, replace)? else {
                return Ok(RuleEditOutcome::Unchanged);
            };
            if self.swap_rule(id, place, &row, &rule).await? {
                self.definitions.invalidate();
                return Ok(RuleEditOutcome::Stored(Box::new(rule)));
            }
        }
        Err(TreeError::Contended)
    }

    /// Edits rules of a tree, or replaces all of them; false if there is no such tree. Checks all rules before it
    /// writes the first. A replacement deletes unlisted rules last.
    pub async fn edit_rules(
        &self,
        id: TreeId,
        edits: &[TreeRuleEdit],
        replace: bool,
    ) -> Result<bool, TreeError> {
        let Some(tree) = self.get(id).await? else { return Ok(false) };
        let mut rules = if replace { BTreeMap::new() } else { tree.rules.clone() };
        for edit in edits {
            let place = place_of(edit)?;
            if !(edit.is_empty() && rules.contains_key(&place))
                && let Some(rule) = edit.merged(rules.get(&place), replace)?
            {
                check_size(&rule)?;
                rules.insert(place, rule);
            }
        }
        if rules.len() > MAX_RULES {
            return Err(TreeError::TooMany { what: "rules of a tree", most: MAX_RULES });
        }
        for (place, rule) in &rules {
            if tree.rules.get(place) != Some(rule) {
                self.put_rule(id, *place, rule).await?;
            }
        }
        let unlisted = tree.rules.keys().filter(|place| !rules.contains_key(place));
        self.delete_columns(id, unlisted.map(|place| rule_qualifier(*place)).collect()).await?;
        self.definitions.invalidate();
        Ok(true)
    }

    /// Deletes a rule, if there is one.
    pub async fn delete_rule(&self, id: TreeId, level: u32, order: u32) -> Result<(), TreeError> {
        self.delete_columns(id, vec![rule_qualifier((level, order))]).await?;
        self.definitions.invalidate();
        Ok(())
    }

    /// Deletes all rules of a tree; false if there is no such tree.
    pub async fn delete_rules(&self, id: TreeId) -> Result<bool, TreeError> {
        let Some(row) = self.read_row(id).await? else { return Ok(false) };
        let rules = row.cells.into_iter().map(|cell| cell.qualifier).filter(|qualifier| {
            matches!(TreeColumn::decode(qualifier), Some(TreeColumn::Rule { .. }))
        });
        self.delete_columns(id, rules.collect()).await?;
        self.definitions.invalidate();
        Ok(true)
    }

    /// Stores a rule, whatever the stored rule is.
    async fn put_rule(
        &self,
        id: TreeId,
        place: (u32, u32),
        rule: &TreeRule,
    ) -> Result<(), TreeError> {
        for _ in 0..MAX_ATTEMPTS {
            let row = self.read_row(id).await?.unwrap_or_else(|| {
                // The tree was deleted meanwhile.
                Row::from_cells(Bytes::copy_from_slice(&id.row()), Vec::new())
            });
            if self.swap_rule(id, place, &row, rule).await? {
                return Ok(());
            }
        }
        Err(TreeError::Contended)
    }

    /// Stores a rule if its cell still equals that of `row`.
    async fn swap_rule(
        &self,
        id: TreeId,
        place: (u32, u32),
        row: &Row,
        rule: &TreeRule,
    ) -> Result<bool, TreeError> {
        check_size(rule)?;
        let qualifier = rule_qualifier(place);
        let stored = row.cells.iter().find(|cell| cell.qualifier == qualifier);
        let expected = stored.map(|cell| cell.value.clone());
        let column =
            Column { row: Bytes::copy_from_slice(&id.row()), family: Family::T, qualifier };
        let value = Bytes::from(rule.to_json());
        Ok(self.storage().compare_and_set(&self.table, column, expected, value).await?)
    }

    async fn delete_columns(&self, id: TreeId, qualifiers: Vec<Bytes>) -> Result<(), TreeError> {
        if qualifiers.is_empty() {
            return Ok(());
        }
        let columns = qualifiers.into_iter().map(|qualifier| (Family::T, qualifier)).collect();
        let delete = Delete::Columns { row: Bytes::copy_from_slice(&id.row()), columns };
        Ok(self.storage().delete(&self.table, delete).await?)
    }
}

fn rule_qualifier((level, order): (u32, u32)) -> Bytes {
    TreeColumn::Rule { level, order }.qualifier().into()
}

fn place_of(edit: &TreeRuleEdit) -> Result<(u32, u32), TreeError> {
    let level = u32::try_from(edit.level).map_err(|_| TreeError::InvalidLevel)?;
    Ok((level, u32::try_from(edit.order).map_err(|_| TreeError::InvalidOrder)?))
}

fn check_size(rule: &TreeRule) -> Result<(), TreeError> {
    if rule.to_json().len() > MAX_RULE_BYTES {
        return Err(TreeError::TooMany { what: "bytes of a rule", most: MAX_RULE_BYTES });
    }
    Ok(())
}
