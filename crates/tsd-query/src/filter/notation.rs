//! Short notation of filters: the `tags` map of a body and the braces of a URI.

use crate::error::TagEntryError;

use super::{
    TagFilter,
    tag_filter::FilterError,
    value_filter::{ValueFilter, ValueFilterError},
};

/// A parsed entry of a pair of braces.
#[derive(Debug)]
pub(crate) enum BraceEntry {
    /// A filter on a tag.
    Tag(TagFilter),
    /// A filter on point values.
    Value(ValueFilter),
}

/// Reason why an entry is invalid.
#[derive(Debug)]
pub(crate) enum EntryError {
    /// Not `key=value`, or a filter that cannot be built.
    Tag(TagEntryError),
    /// A value filter that cannot be built.
    Value(ValueFilterError),
}

/// Parses one `key=expr` of a pair of braces.
pub(crate) fn parse_brace_entry(entry: &str, group_by: bool) -> Result<BraceEntry, EntryError> {
    let invalid = || EntryError::Tag(TagEntryError::NoPair);
    let (tagk, expr) = entry.split_once('=').ok_or_else(invalid)?;
    if tagk.is_empty() || expr.is_empty() {
        return Err(invalid());
    }
    if tagk == ValueFilter::KEY
        && let Some(filter) = ValueFilter::parse(expr)
    {
        return filter.map(BraceEntry::Value).map_err(EntryError::Value);
    }
    if expr.contains('=') {
        return Err(invalid());
    }
    short_filter(tagk, expr, group_by)
        .map(BraceEntry::Tag)
        .map_err(|error| EntryError::Tag(TagEntryError::Filter(error)))
}

/// Parses the short form of a filter.
pub(crate) fn short_filter(
    tagk: &str,
    expr: &str,
    group_by: bool,
) -> Result<TagFilter, FilterError> {
    if expr == "*" {
        return TagFilter::try_new(tagk, "wildcard", expr, group_by);
    }
    if let Some((kind, rest)) = expr.split_once('(') {
        let filter = rest.strip_suffix(')').ok_or_else(|| FilterError::NoEnd(expr.to_owned()))?;
        return TagFilter::try_new(tagk, &kind.to_lowercase(), filter, group_by);
    }
    let kind = if expr.contains('*') { "iwildcard" } else { "literal_or" };
    TagFilter::try_new(tagk, kind, expr, group_by)
}

/// Adds a filter. A group-by filter that equals an existing filter turns that filter into a
/// group-by filter.
pub(crate) fn add_tag(filters: &mut Vec<TagFilter>, filter: TagFilter) {
    if filter.group_by
        && let Some(present) = filters.iter_mut().find(|present| present.same_filter(&filter))
    {
        present.group_by = true;
        return;
    }
    filters.push(filter);
}
