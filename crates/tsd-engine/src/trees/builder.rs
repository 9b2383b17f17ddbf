//! Places series in a tree by its rules, without I/O.
//!
//! Each level gives a name or none; the rules of a level are tried in order. The last name is the leaf, the
//! others are the branches above it. A rule with a separator makes a level of each part of the value. Levels
//! without a name are skipped, and a branch with the name of its parent is that parent, as in OpenTSDB.

use tsd_model::{Branch, Tree, TreeId};

use super::{
    build_error::TreeBuildError,
    rule_match::{CompiledRule, SplitValue, TestMessages},
    series::TreeSeries,
};

/// Most levels of a tree. A row key has four bytes for each, and every branch the names of all above it.
pub(crate) const MAX_LEVELS: usize = 512;
/// Most bytes of the names of a path.
const MAX_PATH_BYTES: usize = 64 << 10;

/// The place of a series in a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePlacement {
    /// Names of the branches below the root, top down.
    pub branches: Vec<String>,
    /// Name of the leaf; `None` if no rule matched. Without branches it is one of the root, which is not
    /// stored.
    pub leaf: Option<String>,
    /// The rules of the levels that did not match, separated by blanks.
    pub not_matched: String,
}

impl TreePlacement {
    /// Names from the root down, `ROOT` first. A first branch with that name is the root itself.
    #[must_use]
    pub fn path(&self) -> Vec<String> {
        let below = match self.branches.split_first() {
            Some((first, rest)) if first == Branch::ROOT => rest,
            _ => &self.branches,
        };
        std::iter::once(Branch::ROOT.to_owned()).chain(below.iter().cloned()).collect()
    }
}

/// The compiled rules of a tree.
#[derive(Debug)]
pub(crate) struct TreeBuilder {
    id: TreeId,
    strict_match: bool,
    /// Rules by level and order.
    levels: Vec<Vec<CompiledRule>>,
}

impl TreeBuilder {
    /// Compiles the rules of a tree.
    pub(crate) fn try_new(tree: &Tree) -> Result<Self, TreeBuildError> {
        let mut levels: Vec<Vec<CompiledRule>> = Vec::new();
        let mut current = None;
        for ((level, _), rule) in &tree.rules {
            if current != Some(level) {
                levels.push(Vec::new());
                current = Some(level);
            }
            if let Some(rules) = levels.last_mut() {
                rules.push(CompiledRule::try_new(rule)?);
            }
        }
        Ok(Self { id: tree.id, strict_match: tree.definition.strict_match, levels })
    }

    pub(crate) const fn id(&self) -> TreeId {
        self.id
    }

    /// True if a rule reads a custom field.
    pub(crate) fn needs_custom_fields(&self) -> bool {
        self.levels.iter().flatten().any(CompiledRule::needs_custom_fields)
    }

    /// True if the series must not be stored, because a level did not match.
    pub(crate) const fn rejects(&self, placement: &TreePlacement) -> bool {
        self.strict_match && !placement.not_matched.is_empty()
    }

    /// The place of a series.
    pub(crate) fn place(
        &self,
        series: &TreeSeries,
        messages: &mut TestMessages,
    ) -> Result<TreePlacement, TreeBuildError> {
        let (names, not_matched) = self.names_of_levels(series, messages)?;
        let (mut branches, leaf) = fold_levels(self.id, &names, &series.tsuid, messages);
        branches.reverse();
        if self.levels.is_empty() {
            messages.add(|| "The tree has no rules".to_owned());
        }
        let placement = TreePlacement { branches, leaf, not_matched };
        if self.rejects(&placement) {
            messages.add(|| {
                let tsuid = &series.tsuid;
                format!("TSUID failed to match one or more rule levels, will not add: {tsuid}")
            });
        }
        Ok(placement)
    }

    /// The name of each level, empty if it has none, and the rules of those without one.
    fn names_of_levels(
        &self,
        series: &TreeSeries,
        messages: &mut TestMessages,
    ) -> Result<(Vec<String>, String), TreeBuildError> {
        let mut names = Vec::new();
        let (mut bytes, mut not_matched) = (0, String::new());
        let mut levels = self.levels.iter();
        let mut level = levels.next();
        // What is left of a value that is split: the level is repeated for each part.
        let mut split: Option<SplitValue<'_>> = None;
        while let Some(rules) = level {
            if names.len() == MAX_LEVELS {
                return Err(TreeBuildError::TooDeep { most: MAX_LEVELS });
            }
            let mut name = String::new();
            let mut last = None;
            for rule in rules {
                messages.add(|| format!("Processing rule: {}", rule.text()));
                name = rule.name(series, &mut split, messages)?;
                last = Some(rule);
                if !name.is_empty() {
                    break;
                }
            }
            if name.is_empty()
                && let Some(rule) = last
            {
                if !not_matched.is_empty() {
                    not_matched.push(' ');
                }
                not_matched.push_str(rule.text());
            }
            if split.as_ref().is_none_or(SplitValue::is_used_up) {
                split = None;
                level = levels.next();
            }
            bytes += name.len();
            if bytes > MAX_PATH_BYTES {
                return Err(TreeBuildError::PathTooLong { most: MAX_PATH_BYTES });
            }
            names.push(name);
        }
        Ok((names, not_matched))
    }
}

/// Branches, bottom up, and leaf of the names of the levels. Messages have the words and the order in which
/// OpenTSDB's recursion returns.
fn fold_levels(
    id: TreeId,
    names: &[String],
    tsuid: &str,
    messages: &mut TestMessages,
) -> (Vec<String>, Option<String>) {
    let mut branches = Vec::new();
    let mut leaf = None;
    // The branch that the levels from here on have made; the leaf at first.
    let mut current: Option<&str> = None;
    for (i, name) in names.iter().enumerate().rev() {
        let depth = i + 2;
        let parent = i.checked_sub(1).and_then(|i| names.get(i)).map(String::as_str);
        if leaf.is_none() {
            if current.is_none() && !name.is_empty() {
                current = Some(name);
            }
            let Some(candidate) = current else { continue };
            match parent {
                Some("") => {
                    messages
                        .add(|| format!("Depth [{depth}] Parent branch was empty, rolling back"));
                }
                parent => {
                    messages.add(|| {
                        let parent = match parent {
                            Some(parent) => format!("Name: [{parent}]"),
                            None => format!("ID: [{}] Name: [{}]", root_id(id), Branch::ROOT),
                        };
                        format!(
                            "Depth [{depth}] Adding leaf [name: {candidate} tsuid: {tsuid}] to \
                             parent branch [{parent}]"
                        )
                    });
                    leaf = Some(candidate.to_owned());
                    current = parent;
                }
            }
            continue;
        }
        let Some(branch) = current else { break };
        match parent {
            None => {}
            Some("") => messages.add(|| {
                format!(
                    "Depth [{depth}] Skipping a non-matched branch, returning: Name: [{branch}]"
                )
            }),
            Some(parent) if parent == branch => {
                messages.add(|| format!("Depth [{depth}] Current was the same as previous"));
            }
            Some(parent) => {
                messages.add(|| {
                    format!(
                        "Depth [{depth}] Adding branch: Name: [{branch}] to parent: Name: \
                         [{parent}]"
                    )
                });
                branches.push(branch.to_owned());
                current = Some(parent);
            }
        }
    }
    branches.extend(current.filter(|_| leaf.is_some()).map(str::to_owned));
    (branches, leaf)
}

fn root_id(id: TreeId) -> String {
    tsd_model::to_hex(&id.row())
}

#[cfg(test)]
mod tests;
