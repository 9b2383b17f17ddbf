//! Places series in a tree by its rules, without I/O.
//!
//! Each level gives the series at most one name; the rules of a level are tried in order. The last name is the leaf,
//! and the others are the branches above it. A rule with a separator makes a level of each piece of the value. As in
//! OpenTSDB, levels without a name are skipped, and a branch with the name of its parent is the same branch.

use tsd_model::{Branch, Tree, TreeId};

use super::{
    build_error::TreeBuildError,
    rule_match::{CompiledRule, SplitValue, TestMessages},
    series::TreeSeries,
};

/// Most levels of a tree. A row key has four bytes per level, and every branch stores the names of all branches above
/// it.
pub(crate) const MAX_LEVELS: usize = 512;
/// Most bytes of the names of a path.
const MAX_PATH_BYTES: usize = 64 << 10;

/// The place of a series in a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePlacement {
    /// Names of the branches below the root, top down.
    pub branches: Vec<String>,
    /// Name of the leaf; `None` if no rule matched. A leaf without branches belongs to the root and is not stored.
    pub leaf: Option<String>,
    /// The rules of the levels that did not match, separated by blanks.
    pub not_matched: String,
}

impl TreePlacement {
    /// Names from the root down, `ROOT` first. If the first branch has that name, it is the root itself.
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

    /// True if the series must not be stored because a level did not match.
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

    /// The name of each level, empty for a level without a name, and the rules of the levels without a name.
    fn names_of_levels(
        &self,
        series: &TreeSeries,
        messages: &mut TestMessages,
    ) -> Result<(Vec<String>, String), TreeBuildError> {
        let mut names = Vec::new();
        let (mut bytes, mut not_matched) = (0, String::new());
        let mut levels = self.levels.iter();
        let mut level = levels.next();
        // The rest of a value that is split. The level is repeated for each piece.
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

/// Folds the names of the levels into branches (bottom up) and a leaf. Messages have the words of OpenTSDB, in the
/// order in which its recursion returns.
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
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use proptest::prelude::*;
    use tsd_model::{TreeDefinition, TreeRule, TreeRuleKind};

    use super::{super::series::TreeName, *};

    fn rule(level: u32, order: u32, kind: TreeRuleKind, field: &str) -> TreeRule {
        TreeRule {
            kind,
            field: field.to_owned(),
            level: level.into(),
            order: order.into(),
            tree_id: 1,
            ..TreeRule::default()
        }
    }

    fn metric(level: u32, separator: &str) -> TreeRule {
        TreeRule { separator: separator.to_owned(), ..rule(level, 0, TreeRuleKind::Metric, "") }
    }

    fn tagk(level: u32, field: &str) -> TreeRule {
        rule(level, 0, TreeRuleKind::Tagk, field)
    }

    fn builder(rules: Vec<TreeRule>, strict_match: bool) -> TreeBuilder {
        let definition = TreeDefinition { strict_match, ..TreeDefinition::default() };
        let mut tree = Tree::new(TreeId::try_new(1).unwrap(), definition);
        for rule in rules {
            let place = (u32::try_from(rule.level).unwrap(), u32::try_from(rule.order).unwrap());
            tree.rules.insert(place, rule);
        }
        TreeBuilder::try_new(&tree).unwrap()
    }

    fn series(metric: &str, tags: &[(&str, &str)]) -> TreeSeries {
        let name = |name: &str| TreeName { name: name.to_owned(), custom: None };
        TreeSeries {
            tsuid: "000001000001000001".to_owned(),
            metric: name(metric),
            tags: tags.iter().map(|(k, v)| (name(k), name(v))).collect(),
        }
    }

    /// Branches and leaf, separated by `/`; empty if no rule matched.
    fn path(builder: &TreeBuilder, series: &TreeSeries) -> String {
        let placement = builder.place(series, &mut TestMessages::none()).unwrap();
        let names = placement.branches.iter().chain(&placement.leaf);
        names.map(String::as_str).collect::<Vec<_>>().join("/")
    }

    fn messages(builder: &TreeBuilder, series: &TreeSeries) -> Vec<String> {
        let mut messages = TestMessages::collected();
        builder.place(series, &mut messages).unwrap();
        messages.into_list()
    }

    #[test]
    fn levels_are_branches_and_the_last_one_is_the_leaf() {
        let tree = builder(vec![tagk(0, "dc"), tagk(1, "host"), metric(2, r"\.")], false);
        let series = series("sys.cpu.user", &[("host", "web01"), ("dc", "dal")]);
        assert_eq!(path(&tree, &series), "dal/web01/sys/cpu/user");
        // As OpenTSDB 2.4.1 answered.
        assert_eq!(
            messages(&tree, &series),
            [
                "Processing rule: [1:0:0:TAGK]",
                "Matched tagk [dc] for rule: [1:0:0:TAGK]",
                "Processing rule: [1:1:0:TAGK]",
                "Matched tagk [host] for rule: [1:1:0:TAGK]",
                "Processing rule: [1:2:0:METRIC]",
                "Processing rule: [1:2:0:METRIC]",
                "Processing rule: [1:2:0:METRIC]",
                "Depth [6] Adding leaf [name: user tsuid: 000001000001000001] to parent branch \
             [Name: [cpu]]",
                "Depth [5] Adding branch: Name: [cpu] to parent: Name: [sys]",
                "Depth [4] Adding branch: Name: [sys] to parent: Name: [web01]",
                "Depth [3] Adding branch: Name: [web01] to parent: Name: [dal]",
            ]
        );
    }

    #[test]
    fn levels_without_a_name_are_skipped() {
        let tags = [("host", "web01"), ("dc", "dal")];
        for (rules, expected) in [
            (vec![tagk(0, "rack"), tagk(1, "dc"), metric(2, "")], "dal/m"),
            (vec![tagk(0, "dc"), tagk(1, "rack"), metric(2, "")], "dal/m"),
            (vec![tagk(0, "dc"), metric(1, ""), tagk(2, "rack")], "dal/m"),
            (vec![tagk(0, "rack"), tagk(1, "rack"), tagk(2, "dc"), metric(7, "")], "dal/m"),
            (
                vec![tagk(0, "dc"), tagk(1, "x"), tagk(2, "host"), tagk(3, "x"), metric(4, "")],
                "dal/web01/m",
            ),
        ] {
            assert_eq!(
                path(&builder(rules.clone(), false), &series("m", &tags)),
                expected,
                "{rules:?}"
            );
        }
        let skipped = messages(
            &builder(vec![tagk(0, "rack"), tagk(1, "dc"), metric(2, "")], false),
            &series("m", &tags),
        );
        let tail = ["Depth [3] Skipping a non-matched branch, returning: Name: [dal]"];
        assert!(skipped.iter().map(String::as_str).rev().take(1).eq(tail), "{skipped:?}");
        let rolled_back = messages(
            &builder(vec![tagk(0, "dc"), tagk(1, "rack"), metric(2, "")], false),
            &series("m", &tags),
        );
        assert_eq!(
            rolled_back.get(5..).unwrap(),
            [
                "Depth [4] Parent branch was empty, rolling back",
                "Depth [3] Adding leaf [name: m tsuid: 000001000001000001] to parent branch \
             [Name: [dal]]",
            ]
        );
    }

    #[test]
    fn a_single_name_is_a_leaf_of_the_root() {
        for rules in [vec![tagk(0, "dc")], vec![tagk(0, "x"), tagk(1, "dc"), tagk(2, "x")]] {
            let tree = builder(rules, false);
            let mut messages = TestMessages::collected();
            let placement = tree.place(&series("m", &[("dc", "dal")]), &mut messages).unwrap();
            assert_eq!((placement.branches.len(), placement.leaf.as_deref()), (0, Some("dal")));
            let last = messages.into_list().pop().unwrap();
            let expected = "Depth [2] Adding leaf [name: dal tsuid: 000001000001000001] to parent \
                        branch [ID: [0001] Name: [ROOT]]";
            assert_eq!(last, expected);
        }
    }

    #[test]
    fn without_a_match_there_is_no_place() {
        for rules in [vec![], vec![tagk(0, "rack"), tagk(1, "row")]] {
            let tree = builder(rules, false);
            let placement = tree.place(&series("m", &[("dc", "dal")]), &mut TestMessages::none());
            let placement = placement.unwrap();
            assert_eq!((placement.branches.len(), placement.leaf), (0, None));
        }
    }

    #[test]
    fn orders_of_a_level_are_alternatives() {
        let second = rule(0, 1, TreeRuleKind::Tagk, "dc");
        let tree = builder(vec![tagk(0, "rack"), second, metric(1, "")], true);
        assert_eq!(path(&tree, &series("m", &[("dc", "dal")])), "dal/m");
        assert_eq!(path(&tree, &series("m", &[("dc", "dal"), ("rack", "r1")])), "r1/m");
        let placement =
            tree.place(&series("m", &[("dc", "dal")]), &mut TestMessages::none()).unwrap();
        assert!(!tree.rejects(&placement));
    }

    #[test]
    fn strict_trees_reject_series_that_miss_a_level() {
        let rules = vec![tagk(0, "dc"), tagk(1, "host"), metric(2, "")];
        let tree = builder(rules, true);
        let mut messages = TestMessages::collected();
        let placement = tree.place(&series("m", &[("rack", "r1")]), &mut messages).unwrap();
        assert!(tree.rejects(&placement));
        assert_eq!(placement.not_matched, "[1:0:0:TAGK] [1:1:0:TAGK]");
        let last = messages.into_list().pop().unwrap();
        assert_eq!(
            last,
            "TSUID failed to match one or more rule levels, will not add: 000001000001000001"
        );
    }

    #[test]
    fn branches_with_the_name_of_their_parent_are_one() {
        let tree = builder(vec![tagk(0, "dc"), metric(1, r"\.")], false);
        assert_eq!(path(&tree, &series("dal.dal.cpu", &[("dc", "dal")])), "dal/cpu");
        assert_eq!(path(&tree, &series("dal.dal", &[("dc", "dal")])), "dal/dal");
        let placement =
            tree.place(&series("cpu", &[("dc", "ROOT")]), &mut TestMessages::none()).unwrap();
        assert_eq!(placement.path(), ["ROOT"]);
        assert_eq!(placement.leaf.as_deref(), Some("cpu"));
    }

    #[test]
    fn empty_parts_are_levels_without_a_name() {
        let tree = builder(vec![tagk(0, "dc"), metric(1, r"\.")], false);
        let tags = [("dc", "dal")];
        assert_eq!(path(&tree, &series(".a..b.", &tags)), "dal/a/b");
        assert_eq!(path(&tree, &series("...", &tags)), "dal");
        let missed = tree.place(&series("a..b", &tags), &mut TestMessages::none()).unwrap();
        assert_eq!(missed.not_matched, "[1:1:0:METRIC]");
        // Two rules of a level share the pieces of one value.
        let second = TreeRule { order: 1, ..metric(1, r"\.") };
        let tree = builder(vec![tagk(0, "dc"), metric(1, r"\."), second], false);
        assert_eq!(path(&tree, &series(".a..b", &tags)), "dal/a/b");
        assert_eq!(path(&tree, &series("...", &tags)), "dal");
    }

    #[test]
    fn paths_are_bounded() {
        let tree = builder(vec![metric(0, r"\.")], false);
        let place = |count: usize, part: &str| {
            let name = (0..count).map(|i| format!("{part}{i}")).collect::<Vec<_>>().join(".");
            tree.place(&series(&name, &[("a", "b")]), &mut TestMessages::none())
        };
        let deepest = place(MAX_LEVELS, "a").unwrap();
        assert_eq!(deepest.branches.len(), MAX_LEVELS - 1);
        assert_eq!(place(MAX_LEVELS + 1, "a"), Err(TreeBuildError::TooDeep { most: MAX_LEVELS }));
        let long = place(100, &"a".repeat(1_000));
        assert_eq!(long, Err(TreeBuildError::PathTooLong { most: 64 << 10 }));
    }

    #[test]
    fn level_numbers_may_be_the_largest() {
        let tree = builder(vec![tagk(0, "dc"), metric(i32::MAX as u32, "")], false);
        assert_eq!(path(&tree, &series("m", &[("dc", "dal")])), "dal/m");
    }

    proptest! {
        #[test]
        fn any_names_are_placed_or_refused(
            metric_name in "[a-c.R]{1,40}", value in "[a-c.]{1,9}", levels in prop::collection::vec(0_usize..4, 0..7),
        ) {
            let rules = levels.iter().zip(0_u32..).map(|(which, level)| match which {
                0 => metric(level, r"\."),
                1 => tagk(level, "host"),
                2 => tagk(level, "absent"),
                _ => metric(level, ""),
            });
            let tree = builder(rules.collect(), false);
            let placement = tree.place(&series(&metric_name, &[("host", &value)]), &mut TestMessages::none());
            let placement = placement.unwrap();
            prop_assert!(placement.leaf.is_some() || placement.branches.is_empty());
            prop_assert!(placement.branches.iter().chain(&placement.leaf).all(|name| !name.is_empty()));
            let equal_neighbours = placement.branches.windows(2).any(|pair| pair[0] == pair[1]);
            prop_assert!(!equal_neighbours);
        }
    }
}
