//! Edits of trees and their rules, and their merge with the stored objects.

use std::fmt;

use super::{TreeDefinition, TreeRule, TreeRuleKind};

/// Fields to set in the definition of a tree. An empty text is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeEdit {
    /// Name.
    pub name: Option<String>,
    /// Short text.
    pub description: Option<String>,
    /// Long text.
    pub notes: Option<String>,
    /// Every level must match.
    pub strict_match: Option<bool>,
    /// New series are added.
    pub enabled: Option<bool>,
    /// Collisions and misses are stored.
    pub store_failures: Option<bool>,
}

impl TreeEdit {
    /// True if it sets no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.name, &self.description, &self.notes].into_iter().all(|text| is_unset(text.as_ref()))
            && [self.strict_match, self.enabled, self.store_failures].iter().all(Option::is_none)
    }

    /// The definition after the edit. Unset fields keep their stored values, unless it replaces all.
    #[must_use]
    pub fn merged(&self, stored: TreeDefinition, replace: bool) -> TreeDefinition {
        let created = stored.created;
        let kept = if replace { TreeDefinition::default() } else { stored };
        TreeDefinition {
            name: text(self.name.as_ref(), kept.name),
            description: text(self.description.as_ref(), kept.description),
            notes: text(self.notes.as_ref(), kept.notes),
            strict_match: self.strict_match.unwrap_or(kept.strict_match),
            created,
            enabled: self.enabled.unwrap_or(kept.enabled),
            store_failures: self.store_failures.unwrap_or(kept.store_failures),
        }
    }
}

/// Fields to set in a rule. An empty text and the group 0 are not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeRuleEdit {
    /// Number of the tree.
    pub tree_id: i64,
    /// Level of the tree.
    pub level: i64,
    /// Order within the level.
    pub order: i64,
    /// Subject.
    pub kind: Option<TreeRuleKind>,
    /// Name of the tag or owner of the custom field.
    pub field: Option<String>,
    /// Name of the custom field.
    pub custom_field: Option<String>,
    /// Regular expression that extracts a part.
    pub regex: Option<String>,
    /// Separator, a regular expression.
    pub separator: Option<String>,
    /// Short text.
    pub description: Option<String>,
    /// Long text.
    pub notes: Option<String>,
    /// Group of the expression.
    pub regex_group: Option<i64>,
    /// Format of the name of a branch.
    pub display_format: Option<String>,
}

/// Why a rule is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeRuleError {
    /// No subject.
    #[error("Missing rule type")]
    NoType,
    /// No name of a tag or of an owner.
    #[error("Missing field name required for {} rule", .0.as_str())]
    NoField(TreeRuleKind),
    /// No name of a custom field.
    #[error("Missing custom field name required for {} rule", .0.as_str())]
    NoCustomField(TreeRuleKind),
    /// A negative group.
    #[error("Invalid regex group index. Cannot be less than 0")]
    NegativeGroup,
}

impl TreeRuleEdit {
    /// True if the edit sets no field. A level or an order other than 0 counts as a field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.level == 0 && self.order == 0 && self.kind.is_none() && self.sets_no_text()
    }

    fn sets_no_text(&self) -> bool {
        let texts = [
            &self.field,
            &self.custom_field,
            &self.regex,
            &self.separator,
            &self.description,
            &self.notes,
            &self.display_format,
        ];
        texts.into_iter().all(|text| is_unset(text.as_ref())) && self.regex_group.unwrap_or(0) == 0
    }

    /// The rule after the edit; `None` if it equals the stored one. Unset fields keep their stored
    /// values, unless the edit replaces all; a replaced rule never counts as equal.
    pub fn merged(
        &self,
        stored: Option<&TreeRule>,
        replace: bool,
    ) -> Result<Option<TreeRule>, TreeRuleError> {
        let kept = stored.filter(|_| !replace);
        let kind = self.kind.or(kept.map(|rule| rule.kind)).ok_or(TreeRuleError::NoType)?;
        let known = |of: fn(&TreeRule) -> &String| kept.map(of).cloned().unwrap_or_default();
        let rule = TreeRule {
            kind,
            field: text(self.field.as_ref(), known(|rule| &rule.field)),
            regex: text(self.regex.as_ref(), known(|rule| &rule.regex)),
            separator: text(self.separator.as_ref(), known(|rule| &rule.separator)),
            description: text(self.description.as_ref(), known(|rule| &rule.description)),
            notes: text(self.notes.as_ref(), known(|rule| &rule.notes)),
            level: self.level,
            order: self.order,
            tree_id: self.tree_id,
            custom_field: text(self.custom_field.as_ref(), known(|rule| &rule.custom_field)),
            regex_group: self
                .regex_group
                .filter(|group| *group != 0)
                .unwrap_or_else(|| kept.map_or(0, |rule| rule.regex_group)),
            display_format: text(self.display_format.as_ref(), known(|rule| &rule.display_format)),
        };
        if kept == Some(&rule) {
            return Ok(None);
        }
        rule.check()?;
        Ok(Some(rule))
    }
}

impl TreeRule {
    /// Fails if the rule is incomplete.
    pub fn check(&self) -> Result<(), TreeRuleError> {
        let is_custom = matches!(
            self.kind,
            TreeRuleKind::MetricCustom | TreeRuleKind::TagkCustom | TreeRuleKind::TagvCustom
        );
        if self.kind != TreeRuleKind::Metric && self.field.is_empty() {
            return Err(TreeRuleError::NoField(self.kind));
        }
        if is_custom && self.custom_field.is_empty() {
            return Err(TreeRuleError::NoCustomField(self.kind));
        }
        if self.regex_group < 0 { Err(TreeRuleError::NegativeGroup) } else { Ok(()) }
    }
}

/// As OpenTSDB names it in messages: `[tree:level:order:type]`.
impl fmt::Display for TreeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:{}:{}:{}]", self.tree_id, self.level, self.order, self.kind.as_str())
    }
}

/// As [`TreeRule`]; the type may be missing.
impl fmt::Display for TreeRuleEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map_or("null", TreeRuleKind::as_str);
        write!(f, "[{}:{}:{}:{kind}]", self.tree_id, self.level, self.order)
    }
}

fn is_unset(text: Option<&String>) -> bool {
    text.is_none_or(String::is_empty)
}

fn text(new: Option<&String>, kept: String) -> String {
    new.filter(|new| !new.is_empty()).cloned().unwrap_or(kept)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn named(name: &str) -> TreeEdit {
        TreeEdit { name: Some(name.to_owned()), ..TreeEdit::default() }
    }

    #[test]
    fn empty_texts_are_not_set_but_false_is() {
        assert!(TreeEdit::default().is_empty());
        assert!(named("").is_empty());
        assert!(!named("T").is_empty());
        assert!(!TreeEdit { enabled: Some(false), ..TreeEdit::default() }.is_empty());
    }

    #[test]
    fn edits_of_trees_merge_or_replace_and_keep_the_creation_time() {
        let stored = TreeDefinition {
            name: "T".to_owned(),
            notes: "n".to_owned(),
            created: 7,
            enabled: true,
            ..TreeDefinition::default()
        };
        let merged = named("U").merged(stored.clone(), false);
        assert_eq!(merged, TreeDefinition { name: "U".to_owned(), ..stored.clone() });
        let replaced = TreeEdit { strict_match: Some(true), ..TreeEdit::default() };
        let expected =
            TreeDefinition { created: 7, strict_match: true, ..TreeDefinition::default() };
        assert_eq!(replaced.merged(stored, true), expected);
    }

    fn rule(kind: TreeRuleKind) -> TreeRuleEdit {
        TreeRuleEdit { tree_id: 1, kind: Some(kind), ..TreeRuleEdit::default() }
    }

    #[test]
    fn rules_need_a_type_and_its_fields() {
        use TreeRuleError::{NegativeGroup, NoCustomField, NoField, NoType};
        use TreeRuleKind::{Metric, MetricCustom, Tagk, TagvCustom};
        let error = |edit: &TreeRuleEdit| edit.merged(None, false).unwrap_err();
        assert_eq!(error(&TreeRuleEdit { level: 1, ..TreeRuleEdit::default() }), NoType);
        assert_eq!(error(&rule(Tagk)), NoField(Tagk));
        assert_eq!(error(&rule(MetricCustom)), NoField(MetricCustom));
        let owned = TreeRuleEdit { field: Some("web01".to_owned()), ..rule(TagvCustom) };
        assert_eq!(error(&owned), NoCustomField(TagvCustom));
        assert_eq!(
            NoCustomField(TagvCustom).to_string(),
            "Missing custom field name required for TAGV_CUSTOM rule"
        );
        let negative = TreeRuleEdit { regex_group: Some(-1), ..rule(Metric) };
        assert_eq!(error(&negative), NegativeGroup);
        assert!(rule(Metric).merged(None, false).unwrap().is_some());
    }

    #[test]
    fn edits_of_rules_merge_or_replace() {
        let first = TreeRuleEdit { notes: Some("n".to_owned()), ..rule(TreeRuleKind::Metric) };
        let stored = first.merged(None, false).unwrap().unwrap();
        assert_eq!(first.merged(Some(&stored), false), Ok(None));
        let again = first.merged(Some(&stored), true).unwrap().unwrap();
        assert_eq!(again, stored, "a replacement is stored even if it is equal");
        let described = TreeRuleEdit {
            tree_id: 1,
            description: Some("d".to_owned()),
            ..TreeRuleEdit::default()
        };
        let merged = described.merged(Some(&stored), false).unwrap().unwrap();
        assert_eq!(merged, TreeRule { description: "d".to_owned(), ..stored.clone() });
        assert_eq!(described.merged(Some(&stored), true), Err(TreeRuleError::NoType));
        let replaced = TreeRuleEdit { kind: Some(TreeRuleKind::Metric), ..described };
        let replaced = replaced.merged(Some(&stored), true).unwrap().unwrap();
        assert_eq!((replaced.notes.as_str(), replaced.description.as_str()), ("", "d"));
    }

    #[test]
    fn an_edit_of_the_first_rule_without_fields_is_empty() {
        assert!(TreeRuleEdit { tree_id: 1, ..TreeRuleEdit::default() }.is_empty());
        assert!(!TreeRuleEdit { tree_id: 1, order: 1, ..TreeRuleEdit::default() }.is_empty());
        assert!(!rule(TreeRuleKind::Metric).is_empty());
    }

    #[test]
    fn messages_name_rules_by_their_place() {
        let edit = TreeRuleEdit { tree_id: 1, level: 2, order: 3, ..TreeRuleEdit::default() };
        assert_eq!(edit.to_string(), "[1:2:3:null]");
        let rule = TreeRuleEdit { field: Some("a".to_owned()), ..rule(TreeRuleKind::Tagk) };
        assert_eq!(rule.merged(None, false).unwrap().unwrap().to_string(), "[1:0:0:TAGK]");
    }
}
