//! API errors of queries.

use tsd_query::{ErrorDetails, QueryError, RawQuery};

use crate::ApiError;

/// Maximum bytes of a query in the details of an error.
const MAX_DUMP: usize = 64 << 10;

/// Returns the API error of a query error. `raw` is the query, if it was parsed.
pub fn query_error(error: &QueryError, raw: Option<&RawQuery>) -> ApiError {
    let api_error = ApiError::new(error.class.status(), error.message.clone());
    match &error.details {
        ErrorDetails::None => api_error,
        ErrorDetails::SameAsMessage => api_error.with_details(error.message.clone()),
        ErrorDetails::QueryDump => api_error.with_details(raw.map(dump).unwrap_or_default()),
        ErrorDetails::Text(text) => api_error.with_details(text.clone()),
    }
}

/// Renders the query for the details of an error.
fn dump(raw: &RawQuery) -> String {
    use std::fmt::Write;

    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "null".to_owned());
    let mut out = format!(
        "TSQuery(start_time={}, end_time={}, timezone={}, queries=[",
        text(&raw.start),
        text(&raw.end),
        text(&raw.timezone),
    );
    for (i, sub) in raw.queries.iter().flatten().enumerate() {
        if out.len() > MAX_DUMP {
            break;
        }
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "{}TSSubQuery(metric={}, tsuids={:?}, aggregator={}, downsample={}, rate={})",
            if i == 0 { "" } else { ", " },
            text(&sub.metric),
            sub.tsuids,
            text(&sub.aggregator),
            text(&sub.downsample),
            sub.rate,
        );
    }
    if out.len() > MAX_DUMP {
        out.truncate(out.floor_char_boundary(MAX_DUMP));
        out.push_str("...");
    } else {
        out.push_str("])");
    }
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::parse_query_body;

    #[test]
    fn details_repeat_the_message_or_dump_the_query() {
        let raw = parse_query_body(r#"{"start":"1h-ago","queries":[{"metric":"m"}]}"#).unwrap();
        let invalid =
            query_error(&QueryError::invalid("Missing the aggregation function"), Some(&raw));
        assert!(invalid.details.contains("metric=m"), "{}", invalid.details);
        let failed = query_error(&QueryError::no_such_name("metrics", "m"), Some(&raw));
        assert_eq!(failed.details, failed.message);
    }
}
