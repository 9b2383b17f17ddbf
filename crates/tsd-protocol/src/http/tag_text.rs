//! Parses `metric{k=v,…}` with names, not filters, in the braces.

/// Parses a metric with complete tag pairs. Errors are OpenTSDB's texts.
pub(super) fn parse_metric_with_tags(
    text: &str,
) -> Result<(String, Vec<(String, String)>), String> {
    let Some((metric, entries)) = split_braces(text)? else {
        return Ok((text.to_owned(), Vec::new()));
    };
    let mut tags: Vec<(String, String)> = Vec::new();
    for entry in entries {
        let error = |reason: &str| format!("When parsing tag '{entry}': {reason}: {entry}");
        let (tagk, tagv) = match entry.split_once('=') {
            Some((tagk, tagv)) if !tagk.is_empty() && !tagv.is_empty() && !tagv.contains('=') => {
                (tagk, tagv)
            }
            _ => return Err(error("invalid tag")),
        };
        match tags.iter().find(|(present, _)| present == tagk) {
            Some((_, present)) if present == tagv => {}
            Some(_) => return Err(error("duplicate tag")),
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
) -> Result<(Option<String>, Vec<OpenPair>), String> {
    let Some((metric, entries)) = split_braces(text)? else {
        if text.is_empty() {
            return Err("Metric string was empty".to_owned());
        }
        return Ok((Some(text.to_owned()), Vec::new()));
    };
    if metric.is_empty() && entries.is_empty() {
        return Err(format!("Missing metric and tags: {text}"));
    }
    let mut tags = Vec::with_capacity(entries.len());
    for entry in entries {
        let pair = match entry.split_once('=') {
            _ if entry.len() < 2 && entry != "*" => Err("Missing tag pair".to_owned()),
            // A star alone matches any tag.
            None if entry == "*" => continue,
            Some(("", tagv)) => Ok((None, Some(tagv.to_owned()))),
            Some((tagk, "")) => Ok((Some(tagk.to_owned()), None)),
            Some((tagk, tagv)) if !tagv.contains('=') => {
                Ok((Some(tagk.to_owned()), Some(tagv.to_owned())))
            }
            _ => Err(format!("invalid tag: {entry}")),
        };
        tags.push(pair.map_err(|reason| format!("When parsing tag '{entry}': {reason}"))?);
    }
    Ok((Some(metric.to_owned()).filter(|metric| !metric.is_empty()), tags))
}

/// Splits into the name before the braces and the entries inside; `None` without braces.
fn split_braces(text: &str) -> Result<Option<(&str, Vec<&str>)>, String> {
    let Some((metric, inner)) = text.split_once('{') else { return Ok(None) };
    let inner =
        inner.strip_suffix('}').ok_or_else(|| format!("Missing '}}' at the end of: {text}"))?;
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
            assert_eq!(parse_metric_with_open_tags(text).unwrap_err(), error);
        }
    }

    #[test]
    fn a_series_has_each_tag_once() {
        let (metric, tags) = parse_metric_with_tags("m{a=b,a=b,c=d}").unwrap();
        assert_eq!((metric.as_str(), tags.len()), ("m", 2));
        assert_eq!(
            parse_metric_with_tags("m{a=b,a=c}").unwrap_err(),
            "When parsing tag 'a=c': duplicate tag: a=c"
        );
        assert!(parse_metric_with_tags("m{a=}").is_err());
    }
}
