//! Applies one rule to a series: selects a value, and turns it into the name of a branch.
//!
//! Texts of messages are OpenTSDB's: `/api/tree/test` shows them.

use regex::Regex;
use tsd_model::{TreeRule, TreeRuleKind};
use tsd_query::compile_pattern;

use super::{
    build_error::TreeBuildError,
    series::{TreeName, TreeSeries},
};

/// Longest name of a branch or a leaf, in bytes; the same as in the UID table.
const MAX_NAME_BYTES: usize = 32_767;

/// Messages of a test of rules.
#[derive(Debug, Default)]
pub(crate) struct TestMessages(Option<Vec<String>>);

/// A rule with its compiled expressions.
#[derive(Debug)]
pub(super) struct CompiledRule {
    rule: TreeRule,
    /// Text that names the rule in messages.
    text: String,
    regex: Option<Regex>,
    separator: Option<Regex>,
}

/// Pieces of a value that a rule has split. Each piece is a level of the tree.
#[derive(Debug)]
pub(super) struct SplitValue<'s> {
    parts: Vec<&'s str>,
    next: usize,
}

impl TestMessages {
    /// Collects nothing.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Collects every message.
    pub(crate) const fn collected() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn add(&mut self, text: impl FnOnce() -> String) {
        if let Some(messages) = &mut self.0 {
            messages.push(text());
        }
    }

    pub(crate) fn into_list(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }
}

impl SplitValue<'_> {
    /// True if every piece was taken.
    pub(super) const fn is_used_up(&self) -> bool {
        self.next >= self.parts.len()
    }
}

impl CompiledRule {
    /// Fails if an expression is invalid, or not supported (look-around, back references).
    pub(super) fn try_new(rule: &TreeRule) -> Result<Self, TreeBuildError> {
        let compile = |pattern: &str| {
            let compiled = (!pattern.is_empty()).then(|| compile_pattern(pattern)).transpose();
            compiled.map_err(|error| TreeBuildError::Pattern {
                rule: rule.to_string(),
                error: error.to_string(),
            })
        };
        Ok(Self {
            rule: rule.clone(),
            text: rule.to_string(),
            regex: compile(&rule.regex)?,
            separator: compile(&rule.separator)?,
        })
    }

    /// Text that names the rule in messages.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// True if it reads a custom field.
    pub(super) const fn needs_custom_fields(&self) -> bool {
        use TreeRuleKind::{MetricCustom, TagkCustom, TagvCustom};
        matches!(self.rule.kind, MetricCustom | TagkCustom | TagvCustom)
    }

    /// The name that the rule gives to the level; empty if the rule does not match.
    ///
    /// `split` has the rest of a value that a rule of the level has split.
    pub(super) fn name<'s>(
        &self,
        series: &'s TreeSeries,
        split: &mut Option<SplitValue<'s>>,
        messages: &mut TestMessages,
    ) -> Result<String, TreeBuildError> {
        let field = &self.rule.field;
        match self.rule.kind {
            TreeRuleKind::Metric => {
                self.of_value(&series.metric.name, &series.tsuid, split, messages)
            }
            TreeRuleKind::Tagk => {
                let tag = series.tags.iter().find(|(tagk, _)| tagk.name == *field);
                match self.matched("tagk", tag.map(|(_, tagv)| tagv), messages) {
                    Some(tagv) => self.of_value(&tagv.name, &series.tsuid, split, messages),
                    None => Ok(String::new()),
                }
            }
            TreeRuleKind::MetricCustom => self.of_custom(&series.metric, series, split, messages),
            TreeRuleKind::TagkCustom => {
                let owner = series.tags.iter().map(|(tagk, _)| tagk).find(|k| k.name == *field);
                match self.matched("tagk", owner, messages) {
                    Some(owner) => self.of_custom(owner, series, split, messages),
                    None => Ok(String::new()),
                }
            }
            TreeRuleKind::TagvCustom => {
                let owner = series.tags.iter().map(|(_, tagv)| tagv).find(|v| v.name == *field);
                match self.matched("tagv", owner, messages) {
                    Some(owner) => self.of_custom(owner, series, split, messages),
                    None => Ok(String::new()),
                }
            }
        }
    }

    /// Reports whether the field of the rule was found.
    fn matched<'s>(
        &self,
        kind: &str,
        found: Option<&'s TreeName>,
        messages: &mut TestMessages,
    ) -> Option<&'s TreeName> {
        let found = found.filter(|name| !name.name.is_empty());
        let (field, rule) = (&self.rule.field, &self.text);
        messages.add(|| match found {
            Some(_) => format!("Matched {kind} [{field}] for rule: {rule}"),
            None => format!("No match on {kind} [{field}] for rule: {rule}"),
        });
        found
    }

    fn of_custom<'s>(
        &self,
        owner: &'s TreeName,
        series: &'s TreeSeries,
        split: &mut Option<SplitValue<'s>>,
        messages: &mut TestMessages,
    ) -> Result<String, TreeBuildError> {
        let (field, rule) = (&self.rule.custom_field, &self.text);
        let Some(value) = owner.custom_field(field) else {
            messages.add(|| format!("No match on custom tag [{field}] for rule: {rule}"));
            return Ok(String::new());
        };
        let name = self.of_value(value, &series.tsuid, split, messages)?;
        messages.add(|| format!("Matched custom tag [{field}] for rule: {rule}"));
        Ok(name)
    }

    fn of_value<'s>(
        &self,
        value: &'s str,
        tsuid: &str,
        split: &mut Option<SplitValue<'s>>,
        messages: &mut TestMessages,
    ) -> Result<String, TreeBuildError> {
        let part = match (&self.regex, &self.separator) {
            (Some(regex), _) => self.extracted(regex, value, messages),
            (None, Some(separator)) => self.next_part(separator, value, split, messages),
            (None, None) => Some(value),
        };
        match part {
            Some(part) => self.formatted(value, part, tsuid, messages),
            None => Ok(String::new()),
        }
    }

    /// The group of the regular expression at its first match.
    fn extracted<'s>(
        &self,
        regex: &Regex,
        value: &'s str,
        messages: &mut TestMessages,
    ) -> Option<&'s str> {
        let captures = regex.captures(value)?;
        let (index, rule) = (self.rule.regex_group, &self.text);
        let groups = regex.captures_len() - 1;
        // The first group is the whole match.
        let group = usize::try_from(index).ok().and_then(|index| index.checked_add(1));
        let Some(group) = group.filter(|group| *group <= groups) else {
            messages.add(|| {
                format!("Regex group index [{index}] for rule {rule} was out of bounds [{groups}]")
            });
            return None;
        };
        let found = captures.get(group).map(|found| found.as_str()).filter(|t| !t.is_empty());
        if found.is_none() {
            messages.add(|| format!("Extracted value for rule {rule} was null or empty"));
        }
        found
    }

    /// The next piece of the value. The first call splits the value.
    fn next_part<'s>(
        &self,
        separator: &Regex,
        value: &'s str,
        split: &mut Option<SplitValue<'s>>,
        messages: &mut TestMessages,
    ) -> Option<&'s str> {
        let split = split.get_or_insert_with(|| {
            let parts = java_split(separator, value);
            if parts.is_empty() {
                let rule = &self.text;
                messages.add(|| {
                    format!("Separator did not match, created an empty list on rule: {rule}")
                });
            }
            SplitValue { parts, next: 0 }
        });
        let part = split.parts.get(split.next).copied();
        split.next += 1;
        part
    }

    fn formatted(
        &self,
        original: &str,
        extracted: &str,
        tsuid: &str,
        messages: &mut TestMessages,
    ) -> Result<String, TreeBuildError> {
        if self.rule.display_format.is_empty() {
            return bounded(extracted.to_owned());
        }
        let mut name = self.rule.display_format.clone();
        for (token, value) in [("{ovalue}", original), ("{value}", extracted), ("{tsuid}", tsuid)] {
            name = replace(name, token, value)?;
        }
        let tag_name = match self.rule.kind {
            TreeRuleKind::Tagk => &self.rule.field,
            TreeRuleKind::Metric => {
                if name.contains("{tag_name}") {
                    let rule = &self.text;
                    messages.add(|| {
                        format!(
                            "Display rule {rule} was of the wrong type to match on {{tag_name}}"
                        )
                    });
                }
                ""
            }
            _ => &self.rule.custom_field,
        };
        bounded(replace(name, "{tag_name}", tag_name)?)
    }
}

/// Replaces a token. Checks the size first, because a text may contain a token many times.
fn replace(text: String, token: &str, value: &str) -> Result<String, TreeBuildError> {
    let count = text.matches(token).count();
    if count == 0 {
        return Ok(text);
    }
    if text.len().saturating_add(count.saturating_mul(value.len())) > MAX_NAME_BYTES * 2 {
        return Err(TreeBuildError::NameTooLong { most: MAX_NAME_BYTES });
    }
    Ok(text.replace(token, value))
}

fn bounded(name: String) -> Result<String, TreeBuildError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(TreeBuildError::NameTooLong { most: MAX_NAME_BYTES });
    }
    Ok(name)
}

/// Splits a text as Java does: without empty pieces at the end, and without an empty piece before a zero-width match
/// at the start. A text without a match is one piece.
fn java_split<'t>(separator: &Regex, text: &'t str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let (mut end, mut from) = (0, 0);
    while from <= text.len()
        && let Some(found) = separator.find_at(text, from)
    {
        from = found.end();
        if found.is_empty() {
            let next_char = text.get(from..).and_then(|rest| rest.chars().next());
            from += next_char.map_or(1, char::len_utf8);
        }
        if end == 0 && found.start() == 0 && found.is_empty() {
            continue;
        }
        parts.push(text.get(end..found.start()).unwrap_or_default());
        end = found.end();
    }
    if end == 0 {
        return vec![text];
    }
    parts.push(text.get(end..).unwrap_or_default());
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check_split(separator: &str, text: &str, parts: &[&str]) {
        assert_eq!(java_split(&compile_pattern(separator).unwrap(), text), parts, "{separator}");
    }

    #[test]
    fn values_are_split_as_in_java() {
        check_split(r"\.", "sys.cpu.user", &["sys", "cpu", "user"]);
        check_split(r"\.", "sys", &["sys"]);
        check_split(r"\.", ".a..b..", &["", "a", "", "b"]);
        check_split(r"\.", "...", &[]);
        check_split(".", "abc", &[]);
        check_split("[-_]+", "a--b_c", &["a", "b", "c"]);
        check_split("|", "aäc", &["a", "ä", "c"]);
        check_split("a*", "baac", &["b", "", "c"]);
        check_split("}", "a}b", &["a", "b"]);
        check_split(r"\.", "", &[""]);
        check_split("é", "aéb", &["a", "b"]);
    }

    fn rule(kind: TreeRuleKind) -> TreeRule {
        TreeRule { kind, field: "host".into(), tree_id: 1, ..TreeRule::default() }
    }

    fn series() -> TreeSeries {
        let name = |name: &str, custom: &[(&str, Option<&str>)]| TreeName {
            name: name.to_owned(),
            custom: (!custom.is_empty()).then(|| {
                let owned = custom.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned)));
                owned.collect()
            }),
        };
        TreeSeries {
            tsuid: "000001000001000001".to_owned(),
            metric: name("sys.cpu", &[("owner", Some("ops"))]),
            tags: vec![
                (name("dc", &[]), name("dal", &[])),
                (
                    name("host", &[("dept", Some("web")), ("none", None)]),
                    name("web01.dal", &[("rack", Some("r1,s2"))]),
                ),
            ],
        }
    }

    /// Name and messages of a rule.
    fn apply(rule: &TreeRule) -> (String, Vec<String>) {
        let mut messages = TestMessages::collected();
        let compiled = CompiledRule::try_new(rule).unwrap();
        let name = compiled.name(&series(), &mut None, &mut messages).unwrap();
        (name, messages.into_list())
    }

    #[test]
    fn each_type_selects_its_value() {
        use TreeRuleKind::{Metric, MetricCustom, Tagk, TagkCustom, TagvCustom};
        assert_eq!(apply(&rule(Metric)), ("sys.cpu".to_owned(), vec![]));
        let matched = "Matched tagk [host] for rule: [1:0:0:TAGK]".to_owned();
        assert_eq!(apply(&rule(Tagk)), ("web01.dal".to_owned(), vec![matched]));
        let custom = |kind, field: &str, custom_field: &str| {
            let rule =
                TreeRule { field: field.into(), custom_field: custom_field.into(), ..rule(kind) };
            apply(&rule)
        };
        assert_eq!(
            custom(MetricCustom, "any", "owner"),
            (
                "ops".to_owned(),
                vec!["Matched custom tag [owner] for rule: [1:0:0:METRIC_CUSTOM]".to_owned()]
            )
        );
        assert_eq!(
            custom(TagkCustom, "host", "dept"),
            (
                "web".to_owned(),
                vec![
                    "Matched tagk [host] for rule: [1:0:0:TAGK_CUSTOM]".to_owned(),
                    "Matched custom tag [dept] for rule: [1:0:0:TAGK_CUSTOM]".to_owned(),
                ]
            )
        );
        assert_eq!(custom(TagvCustom, "web01.dal", "rack").0, "r1,s2");
        for (field, custom_field) in [("host", "none"), ("host", "other"), ("dc", "dept")] {
            let (name, messages) = custom(TagkCustom, field, custom_field);
            assert_eq!(name, "");
            let last =
                format!("No match on custom tag [{custom_field}] for rule: [1:0:0:TAGK_CUSTOM]");
            assert_eq!(messages.last(), Some(&last));
        }
        let missing = TreeRule { field: "rack".into(), ..rule(Tagk) };
        let text = "No match on tagk [rack] for rule: [1:0:0:TAGK]".to_owned();
        assert_eq!(apply(&missing), (String::new(), vec![text]));
        let text = "No match on tagv [web02] for rule: [1:0:0:TAGV_CUSTOM]".to_owned();
        assert_eq!(custom(TagvCustom, "web02", "rack"), (String::new(), vec![text]));
    }

    #[test]
    fn expressions_extract_a_group() {
        let with = |regex: &str, group| {
            let rule =
                TreeRule { regex: regex.into(), regex_group: group, ..rule(TreeRuleKind::Tagk) };
            let (name, mut messages) = apply(&rule);
            messages.remove(0);
            (name, messages)
        };
        assert_eq!(with(r"^([a-z]+)(\d+)", 0), ("web".to_owned(), vec![]));
        assert_eq!(with(r"^([a-z]+)(\d+)", 1), ("01".to_owned(), vec![]));
        assert_eq!(with("^db", 0), (String::new(), vec![]));
        let out_of_bounds = |index: i64, groups: usize| {
            let text = format!(
                "Regex group index [{index}] for rule [1:0:0:TAGK] was out of bounds [{groups}]"
            );
            (String::new(), vec![text])
        };
        assert_eq!(with("web", 0), out_of_bounds(0, 0));
        assert_eq!(with("(web)", 1), out_of_bounds(1, 1));
        assert_eq!(with("(web)", i64::MAX), out_of_bounds(i64::MAX, 1));
        let empty = "Extracted value for rule [1:0:0:TAGK] was null or empty".to_owned();
        assert_eq!(with("web(x?)", 0), (String::new(), vec![empty.clone()]));
        assert_eq!(with("web(x)?", 0), (String::new(), vec![empty]));
    }

    #[test]
    fn formats_have_tokens() {
        let named = |kind, format: &str| {
            let rule = TreeRule {
                display_format: format.into(),
                regex: "^([a-z]+)".into(),
                custom_field: "dept".into(),
                ..rule(kind)
            };
            apply(&rule)
        };
        let (name, _) = named(TreeRuleKind::Tagk, "{tag_name}: {value} of {ovalue} {tsuid} {x}");
        assert_eq!(name, "host: web of web01.dal 000001000001000001 {x}");
        assert_eq!(named(TreeRuleKind::TagkCustom, "{tag_name}={value}").0, "dept=web");
        let (name, messages) = named(TreeRuleKind::Metric, "{tag_name}");
        assert_eq!(name, "");
        assert_eq!(
            messages,
            ["Display rule [1:0:0:METRIC] was of the wrong type to match on {tag_name}"]
        );
    }

    #[test]
    fn tokens_in_values_do_not_multiply_without_bound() {
        let rule =
            TreeRule { display_format: "{ovalue}".repeat(4_096), ..rule(TreeRuleKind::Metric) };
        let mut series = series();
        series.metric.name = "{value}".repeat(4_096);
        let compiled = CompiledRule::try_new(&rule).unwrap();
        let name = compiled.name(&series, &mut None, &mut TestMessages::none());
        assert!(matches!(name, Err(TreeBuildError::NameTooLong { .. })));
    }

    #[test]
    fn invalid_expressions_are_refused() {
        for (regex, separator) in [("(", ""), ("", "*"), ("(?=a)", ""), ("a++", "")] {
            let rule = TreeRule {
                regex: regex.into(),
                separator: separator.into(),
                ..rule(TreeRuleKind::Metric)
            };
            let error = CompiledRule::try_new(&rule).unwrap_err();
            assert!(matches!(error, TreeBuildError::Pattern { .. }), "{regex} {separator}");
        }
    }
}
