//! Row filters as far as a server can evaluate them.
//!
//! What is pushed down may let rows through that the filter does not want, never the other way round;
//! every row is looked at again here. Patterns are bounded: a set that is too large for one is left
//! out of it, and only costs the transfer of the rows.

mod pattern;

use bytes::Bytes;
use hbase_rs::{Comparator, CompareOp, Filter, FuzzyKey, REGEX_DOTALL};
use tsd_storage::{RowFilter, Scan, TagPattern};

/// Keys with wildcards in one filter at most: the server tries them in turn.
const MAX_FUZZY_KEYS: usize = 32;

/// How a scan's filter is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PushedDown {
    /// The server sends every row of the range.
    Nothing,
    /// No row can match.
    NoRow,
    /// These rows are read one by one; sorted.
    Keys(Vec<Bytes>),
    /// The server looks at these tests, all of which must hold.
    Tests(Vec<Test>),
}

/// A test of a row key on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// The key has one of these beginnings; `None` is any byte. The server skips what lies between.
    Fuzzy(Vec<Vec<Option<u8>>>),
    /// The key is found by this Java expression, which is ASCII and knows bytes as characters.
    Pattern(String),
}

impl PushedDown {
    /// Plans the filter of a scan.
    pub(crate) fn plan(scan: &Scan) -> Self {
        match &scan.filter {
            None => Self::Nothing,
            Some(filter) => of_filter(filter, &common_prefix(&scan.start, &scan.stop)),
        }
    }
}

/// The bytes that every key of a range begins with.
fn common_prefix(start: &[u8], stop: &[u8]) -> Vec<u8> {
    start.iter().zip(stop).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
}

fn of_filter(filter: &RowFilter, prefix: &[u8]) -> PushedDown {
    match filter {
        RowFilter::Tags(tags) => of_tags(tags, prefix),
        RowFilter::Keys(keys) => PushedDown::Keys(keys.to_vec()),
        RowFilter::Series(series) if series.tags.is_empty() => PushedDown::NoRow,
        RowFilter::Series(series) => match pattern::one_of(&series.tags) {
            Some(set) => {
                let head = pattern::any(series.tags_start);
                PushedDown::Tests(vec![Test::Pattern(format!("^{head}{set}\\z"))])
            }
            None => PushedDown::Nothing,
        },
        RowFilter::All(filters) => all(filters.iter().map(|filter| of_filter(filter, prefix))),
        _ => PushedDown::Nothing,
    }
}

/// Keys that are named go before tests: few rows are better than many looked at.
fn all(parts: impl Iterator<Item = PushedDown>) -> PushedDown {
    let mut tests = Vec::new();
    let mut keys: Option<Vec<Bytes>> = None;
    for part in parts {
        match part {
            PushedDown::NoRow => return PushedDown::NoRow,
            PushedDown::Nothing => {}
            PushedDown::Tests(more) => tests.extend(more),
            PushedDown::Keys(more) => match &mut keys {
                None => keys = Some(more),
                Some(keys) => keys.retain(|key| more.binary_search(key).is_ok()),
            },
        }
    }
    match keys {
        Some(keys) => PushedDown::Keys(keys),
        None if tests.is_empty() => PushedDown::Nothing,
        None => {
            // Those that let the server skip go first.
            tests.sort_by_key(|test| matches!(test, Test::Pattern(_)));
            PushedDown::Tests(tests)
        }
    }
}

fn of_tags(tags: &TagPattern, prefix: &[u8]) -> PushedDown {
    let pair = tags.tagk_width + tags.tagv_width;
    if pair == 0
        || tags
            .conditions
            .iter()
            .any(|condition| condition.tagvs.as_ref().is_some_and(Vec::is_empty))
    {
        return PushedDown::NoRow;
    }
    if tags.conditions.is_empty() && !tags.explicit {
        return PushedDown::Nothing;
    }
    let others = if tags.explicit { String::new() } else { format!("(?:{})*", pattern::any(pair)) };
    let mut text = format!("^{}", pattern::any(tags.tags_start));
    for condition in &tags.conditions {
        text.push_str(&others);
        text.push_str(&pattern::literal(&condition.tagk));
        let values = condition.tagvs.as_ref().and_then(|values| pattern::one_of(values));
        text.push_str(&values.unwrap_or_else(|| pattern::any(tags.tagv_width)));
    }
    text.push_str(&others);
    text.push_str("\\z");
    let mut tests = vec![Test::Pattern(text)];
    if tags.explicit && !tags.conditions.is_empty() {
        tests.insert(0, Test::Fuzzy(fuzzy_keys(tags, prefix)));
    }
    PushedDown::Tests(tests)
}

/// The keys of rows with exactly the wanted tags. Values are spelt out as long as that makes few keys.
fn fuzzy_keys(tags: &TagPattern, prefix: &[u8]) -> Vec<Vec<Option<u8>>> {
    let head: Vec<Option<u8>> = (0..tags.tags_start).map(|at| prefix.get(at).copied()).collect();
    let mut keys = vec![head];
    for condition in &tags.conditions {
        let values = condition.tagvs.as_deref().unwrap_or_default();
        let spelt = !values.is_empty() && keys.len() * values.len() <= MAX_FUZZY_KEYS;
        let tails: Vec<Vec<Option<u8>>> = if spelt {
            values.iter().map(|value| value.iter().copied().map(Some).collect()).collect()
        } else {
            vec![vec![None; tags.tagv_width]]
        };
        let tagk: Vec<Option<u8>> = condition.tagk.iter().copied().map(Some).collect();
        keys = keys
            .iter()
            .flat_map(|key| tails.iter().map(|tail| [&key[..], &tagk, tail].concat()))
            .collect();
    }
    keys
}

/// The tests as one filter of HBase.
pub(crate) fn server_filter(tests: Vec<Test>) -> Option<Filter> {
    let mut filters: Vec<Filter> = tests.into_iter().map(of_test).collect();
    if filters.len() > 1 { Some(Filter::all_of(filters)) } else { filters.pop() }
}

fn of_test(test: Test) -> Filter {
    match test {
        Test::Fuzzy(keys) => Filter::fuzzy_rows(keys.into_iter().map(FuzzyKey::new)),
        Test::Pattern(text) => {
            let expression = Comparator::binary_regex(text.as_bytes(), REGEX_DOTALL);
            Filter::row(CompareOp::Equal, expression)
        }
    }
}

#[cfg(test)]
mod tests;
