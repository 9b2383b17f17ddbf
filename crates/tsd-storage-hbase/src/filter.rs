//! Translates row filters to filters of the region server.
//!
//! A server filter may accept rows that do not match, but never rejects a matching row; the client checks every row
//! again. The size of patterns is bounded: a set that is too large is omitted, at the cost of transferring more
//! rows.

mod pattern;

use bytes::Bytes;
use hbase_rs::filter::{Comparator, CompareOp, Filter, FuzzyKey, REGEX_DOTALL};
use tsd_storage::{RowFilter, Scan, TagCondition, TagPattern};

/// Limit on fuzzy keys in one filter: the server tests them one after the other.
const MAX_FUZZY_KEYS: usize = 32;

/// How the filter of a scan is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterPlan {
    /// The server returns every row of the range.
    NoServerFilter,
    /// No row can match.
    NoRow,
    /// These rows are read by key; sorted.
    Keys(Vec<Bytes>),
    /// The server returns the rows that pass all tests.
    Tests(Vec<KeyTest>),
}

/// A condition on the row key that the server evaluates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyTest {
    /// The key starts with one of these; `None` matches any byte. The server skips the keys
    /// between.
    Fuzzy(Vec<Vec<Option<u8>>>),
    /// The key matches this Java regular expression, in ASCII; bytes are characters.
    Pattern(String),
}

impl FilterPlan {
    /// Plans the evaluation of a scan's filter.
    pub(crate) fn plan(scan: &Scan) -> Self {
        match &scan.filter {
            None => Self::NoServerFilter,
            Some(filter) => plan_filter(filter, &common_prefix(&scan.start, &scan.stop)),
        }
    }
}

/// Returns the common prefix of all keys of a range.
fn common_prefix(start: &[u8], stop: &[u8]) -> Vec<u8> {
    start.iter().zip(stop).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
}

fn plan_filter(filter: &RowFilter, prefix: &[u8]) -> FilterPlan {
    match filter {
        RowFilter::Tags(tags) => plan_tags(tags, prefix),
        RowFilter::Keys(keys) => FilterPlan::Keys(keys.to_vec()),
        RowFilter::Series(series) if series.tags.is_empty() => FilterPlan::NoRow,
        RowFilter::Series(series) => match pattern::one_of(&series.tags) {
            Some(set) => {
                let head = pattern::any(series.tags_start);
                FilterPlan::Tests(vec![KeyTest::Pattern(format!("^{head}{set}\\z"))])
            }
            None => FilterPlan::NoServerFilter,
        },
        RowFilter::All(filters) => {
            plan_all(filters.iter().map(|filter| plan_filter(filter, prefix)))
        }
        _ => FilterPlan::NoServerFilter,
    }
}

/// Combines the plans of filters that must all match. Explicit keys take precedence over tests: reading few rows by
/// key is cheaper than testing a range.
fn plan_all(plans: impl Iterator<Item = FilterPlan>) -> FilterPlan {
    let mut tests = Vec::new();
    let mut keys: Option<Vec<Bytes>> = None;
    for plan in plans {
        match plan {
            FilterPlan::NoRow => return FilterPlan::NoRow,
            FilterPlan::NoServerFilter => {}
            FilterPlan::Tests(more) => tests.extend(more),
            FilterPlan::Keys(more) => match &mut keys {
                None => keys = Some(more),
                Some(keys) => keys.retain(|key| more.binary_search(key).is_ok()),
            },
        }
    }
    match keys {
        Some(keys) => FilterPlan::Keys(keys),
        None if tests.is_empty() => FilterPlan::NoServerFilter,
        None => {
            // Fuzzy keys first: they let the server skip keys.
            tests.sort_by_key(|test| matches!(test, KeyTest::Pattern(_)));
            FilterPlan::Tests(tests)
        }
    }
}

fn plan_tags(tags: &TagPattern, prefix: &[u8]) -> FilterPlan {
    let pair = tags.tagk_width + tags.tagv_width;
    let allows_nothing = |of: &TagCondition| of.tagvs.as_ref().is_some_and(Vec::is_empty);
    if pair == 0 || tags.conditions.iter().any(allows_nothing) {
        return FilterPlan::NoRow;
    }
    if tags.conditions.is_empty() && !tags.explicit {
        return FilterPlan::NoServerFilter;
    }
    let others = if tags.explicit { String::new() } else { format!("(?:{})*", pattern::any(pair)) };
    let mut text = format!("^{}", pattern::any(tags.tags_start));
    for condition in &tags.conditions {
        text.push_str(&others);
        text.push_str(&pattern::literal(condition.tagk.as_bytes()));
        let values = condition.tagvs.as_ref().and_then(|values| pattern::one_of(values));
        text.push_str(&values.unwrap_or_else(|| pattern::any(tags.tagv_width)));
    }
    text.push_str(&others);
    text.push_str("\\z");
    let leading = if tags.explicit { &tags.conditions } else { leading_conditions(tags) };
    let mut tests = Vec::new();
    if !leading.is_empty() {
        tests.push(KeyTest::Fuzzy(fuzzy_keys(tags, leading, prefix)));
    }
    tests.push(KeyTest::Pattern(text));
    FilterPlan::Tests(tests)
}

/// Returns the conditions whose tags are at known positions, at the start of the tags. Tags are sorted by the UIDs
/// of their keys, UIDs begin at 1, and no series has a key twice. So a tag with the key 1 is the first, and in a
/// series with both, the tag with the key 2 is the second, and so on. The server can skip to these tags, whatever
/// other tags follow.
fn leading_conditions(tags: &TagPattern) -> &[TagCondition] {
    let mut count = 0;
    let mut keys = 1_usize;
    for (index, condition) in tags.conditions.iter().enumerate() {
        let values = condition.tagvs.as_ref().map_or(0, Vec::len);
        keys = keys.saturating_mul(values);
        if condition.tagk.to_number() != index as u64 + 1 || keys == 0 || keys > MAX_FUZZY_KEYS {
            break;
        }
        count = index + 1;
    }
    tags.conditions.get(..count).unwrap_or_default()
}

/// Returns the fuzzy keys of rows whose tags begin with these. Enumerates values up to [`MAX_FUZZY_KEYS`] keys.
fn fuzzy_keys(
    tags: &TagPattern,
    conditions: &[TagCondition],
    prefix: &[u8],
) -> Vec<Vec<Option<u8>>> {
    let head: Vec<Option<u8>> = (0..tags.tags_start).map(|at| prefix.get(at).copied()).collect();
    let mut keys = vec![head];
    for condition in conditions {
        let values = condition.tagvs.as_deref().unwrap_or_default();
        let enumerate = !values.is_empty() && keys.len() * values.len() <= MAX_FUZZY_KEYS;
        let tails: Vec<Vec<Option<u8>>> = if enumerate {
            values.iter().map(|value| fixed(value.as_bytes())).collect()
        } else {
            vec![vec![None; tags.tagv_width]]
        };
        let tagk = fixed(condition.tagk.as_bytes());
        keys = keys
            .iter()
            .flat_map(|key| tails.iter().map(|tail| [&key[..], &tagk, tail].concat()))
            .collect();
    }
    keys
}

/// Returns the part of a fuzzy key that has these bytes.
fn fixed(bytes: &[u8]) -> Vec<Option<u8>> {
    bytes.iter().copied().map(Some).collect()
}

/// Returns the tests as one filter of HBase.
pub(crate) fn server_filter(tests: Vec<KeyTest>) -> Option<Filter> {
    let mut filters: Vec<Filter> = tests.into_iter().map(test_filter).collect();
    if filters.len() > 1 { Some(Filter::all_of(filters)) } else { filters.pop() }
}

fn test_filter(test: KeyTest) -> Filter {
    match test {
        KeyTest::Fuzzy(keys) => Filter::fuzzy_rows(keys.into_iter().map(FuzzyKey::new)),
        KeyTest::Pattern(text) => {
            let expression = Comparator::binary_regex(text.as_bytes(), REGEX_DOTALL);
            Filter::row(CompareOp::Equal, expression)
        }
    }
}

#[cfg(test)]
mod tests;
