//! Parses `metric{k=v,…}` with names, not filters, in the braces.

/// Why the text is not a metric with tags. Errors are OpenTSDB's texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TagTextError {
    /// The text is empty.
    #[error("Metric string was empty")]
    Empty,
    /// The braces are empty, and no metric precedes them.
    #[error("Missing metric and tags: {0}")]
    NoMetricAndTags(String),
    /// An opening brace without a closing one.
    #[error("Missing '}}' at the end of: {0}")]
    NoClosingBrace(String),
    /// An entry of the braces is too short for a pair.
    #[error("When parsing tag '{0}': Missing tag pair")]
    NoPair(String),
    /// An entry of the braces is not a pair.
    #[error("When parsing tag '{0}': invalid tag: {0}")]
    InvalidTag(String),
    /// A tag key occurs twice, with different values.
    #[error("When parsing tag '{0}': duplicate tag: {0}")]
    DuplicateTag(String),
}

/// Parses a metric with complete tag pairs. Errors are OpenTSDB's texts.
pub(super) fn parse_metric_with_tags(
    text: &str,
) -> Result<(String, Vec<(String, String)>), TagTextError> {
    let Some((metric, entries)) = split_braces(text)? else {
        return Ok((text.to_owned(), Vec::new()));
    };
    let mut tags: Vec<(String, String)> = Vec::new();
    for entry in entries {
        let (tagk, tagv) = match entry.split_once('=') {
            Some((tagk, tagv)) if !tagk.is_empty() && !tagv.is_empty() && !tagv.contains('=') => {
                (tagk, tagv)
            }
            _ => return Err(TagTextError::InvalidTag(entry.to_owned())),
        };
        match tags.iter().find(|(present, _)| present == tagk) {
            Some((_, present)) if present == tagv => {}
            Some(_) => return Err(TagTextError::DuplicateTag(entry.to_owned())),
            None => tags.push((tagk.to_owned(), tagv.to_owned())),
        }
    }
    Ok((metric.to_owned(), tags))
}

/// A tag pair whose key or value may be open.
pub(super) type OpenPair = (Option<String>, Option<String>);

/// Parses a metric with tags whose keys or values may be open, `{k=,=v,k=v}`. Without a metric
/// there must be tags.
pub(super) fn parse_metric_with_open_tags(
    text: &str,
) -> Result<(Option<String>, Vec<OpenPair>), TagTextError> {
    let Some((metric, entries)) = split_braces(text)? else {
        if text.is_empty() {
            return Err(TagTextError::Empty);
        }
        return Ok((Some(text.to_owned()), Vec::new()));
    };
    if metric.is_empty() && entries.is_empty() {
        return Err(TagTextError::NoMetricAndTags(text.to_owned()));
    }
    let mut tags = Vec::with_capacity(entries.len());
    for entry in entries {
        let pair = match entry.split_once('=') {
            _ if entry.len() < 2 && entry != "*" => {
                return Err(TagTextError::NoPair(entry.to_owned()));
            }
            // A star alone matches any tag.
            None if entry == "*" => continue,
            Some(("", tagv)) => (None, Some(tagv.to_owned())),
            Some((tagk, "")) => (Some(tagk.to_owned()), None),
            Some((tagk, tagv)) if !tagv.contains('=') => {
                (Some(tagk.to_owned()), Some(tagv.to_owned()))
            }
            _ => return Err(TagTextError::InvalidTag(entry.to_owned())),
        };
        tags.push(pair);
    }
    Ok((Some(metric.to_owned()).filter(|metric| !metric.is_empty()), tags))
}

/// Splits into the name before the braces and the entries inside; `None` without braces.
fn split_braces(text: &str) -> Result<Option<(&str, Vec<&str>)>, TagTextError> {
    let Some((metric, inner)) = text.split_once('{') else { return Ok(None) };
    let inner =
        inner.strip_suffix('}').ok_or_else(|| TagTextError::NoClosingBrace(text.to_owned()))?;
    let entries = if inner.is_empty() { Vec::new() } else { inner.split(',').collect() };
    Ok(Some((metric, entries)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(text: &str, metric: Option<&str>, tags: &[(Option<&str>, Option<&str>)]) {
        let (found, pairs) = parse_metric_with_open_tags(text).unwrap();
        assert_eq!(found.as_deref(), metric, "{text}");
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_deref(), v.as_deref())).collect();
        assert_eq!(pairs, tags, "{text}");
    }

    #[test]
    fn either_side_of_a_pair_may_be_open() {
        check("m", Some("m"), &[]);
        check("m{}", Some("m"), &[]);
        check("*{a=b}", Some("*"), &[(Some("a"), Some("b"))]);
        check(
            "{a=,=b,c=*,*=d,*}",
            None,
            &[(Some("a"), None), (None, Some("b")), (Some("c"), Some("*")), (Some("*"), Some("d"))],
        );
        check("m{k=a|b}", Some("m"), &[(Some("k"), Some("a|b"))]);
    }

    #[test]
    fn errors_are_opentsdbs_texts() {
        for (text, error) in [
            ("", "Metric string was empty"),
            ("{}", "Missing metric and tags: {}"),
            ("m{a=b", "Missing '}' at the end of: m{a=b"),
            ("m{ab}", "When parsing tag 'ab': invalid tag: ab"),
            ("m{a=b=c}", "When parsing tag 'a=b=c': invalid tag: a=b=c"),
            ("m{a=b,}", "When parsing tag '': Missing tag pair"),
        ] {
            assert_eq!(parse_metric_with_open_tags(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_series_has_each_tag_once() {
        let (metric, tags) = parse_metric_with_tags("m{a=b,a=b,c=d}").unwrap();
        assert_eq!((metric.as_str(), tags.len()), ("m", 2));
        assert_eq!(
            parse_metric_with_tags("m{a=b,a=c}").unwrap_err().to_string(),
            "When parsing tag 'a=c': duplicate tag: a=c"
        );
        assert!(parse_metric_with_tags("m{a=}").is_err());
    }
}
