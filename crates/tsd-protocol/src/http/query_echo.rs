//! Renders a query for the query list.

use tsd_query::{Query, RawQuery};

use super::sub_query_echo::render_sub_query;
use crate::json::{JsonObject, write_json_string};

/// Maximum bytes of rendered sub queries: the list keeps them in memory.
const MAX_SUB_QUERIES_BYTES: usize = 16 << 10;

/// Renders a query with OpenTSDB's fields in their order. Omits sub queries beyond a size limit and
/// writes their number to `subQueriesLeftOut`. `expressions` belong to `gexp` queries.
#[must_use]
pub fn render_query(raw: &RawQuery, query: &Query, expressions: &[&str]) -> String {
    let mut out = Vec::new();
    let mut object = JsonObject::open(&mut out);
    for (key, text) in [("start", &raw.start), ("end", &raw.end), ("timezone", &raw.timezone)] {
        object.optional(key, text.as_deref().map(truncated));
    }
    object.literal("options", "null").literal("padding", raw.padding);
    let mut shown = Vec::new();
    let mut bytes = 0;
    for sub in &query.sub_queries {
        let text = render_sub_query(sub, None, None);
        bytes += text.len();
        if bytes > MAX_SUB_QUERIES_BYTES {
            break;
        }
        shown.push(text);
    }
    let omitted = query.sub_queries.len() - shown.len();
    object.list("queries", shown, |out, text| out.extend_from_slice(text.as_bytes()));
    if omitted > 0 {
        object.literal("subQueriesLeftOut", omitted);
    }
    if !expressions.is_empty() {
        let mut bytes = 0;
        let shown = expressions.iter().filter(|text| {
            bytes += text.len();
            bytes <= MAX_SUB_QUERIES_BYTES
        });
        object.list("exp", shown, |out, text| write_json_string(out, text));
    }
    object
        .literal("delete", query.delete)
        .literal("globalAnnotations", query.global_annotations)
        .literal("noAnnotations", query.no_annotations)
        .literal("showTSUIDs", query.show_tsuids)
        .literal("msResolution", query.ms_resolution)
        .literal("showQuery", query.show_query)
        .literal("showStats", query.show_stats)
        .literal("showSummary", query.show_summary)
        .literal("useCalendar", raw.use_calendar)
        .close();
    String::from_utf8(out).unwrap_or_default()
}

/// Truncates a text far longer than any time or zone.
fn truncated(text: &str) -> &str {
    text.get(..text.floor_char_boundary(256)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_query::Clock;

    use super::*;
    use crate::parse_query_body;

    fn echo(body: &str) -> String {
        let raw = parse_query_body(body).unwrap();
        let query = raw.validate(&Clock::utc(1_356_998_400_000)).unwrap();
        render_query(&raw, &query, &[])
    }

    #[test]
    fn fields_have_opentsdbs_order() {
        let text = echo(
            r#"{"start":"1h-ago","padding":true,"queries":[{"aggregator":"sum","metric":"m"}]}"#,
        );
        let (head, rest) = text.split_once("\"queries\":[").unwrap();
        assert_eq!(
            head,
            r#"{"start":"1h-ago","end":null,"timezone":null,"options":null,"padding":true,"#
        );
        let (_, tail) = rest.split_once("],\"delete\"").unwrap();
        assert_eq!(
            tail,
            r#":false,"globalAnnotations":false,"noAnnotations":false,"showTSUIDs":false,"msResolution":false,"showQuery":false,"showStats":false,"showSummary":false,"useCalendar":false}"#
        );
    }

    #[test]
    fn long_queries_are_shortened() {
        let subs: Vec<String> =
            (0..4_000).map(|n| format!(r#"{{"aggregator":"sum","metric":"m{n}"}}"#)).collect();
        let text = echo(&format!(r#"{{"start":"1h-ago","queries":[{}]}}"#, subs.join(",")));
        assert!(text.len() < 20_000, "{}", text.len());
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let shown = read.get("queries").unwrap().as_array().unwrap().len() as u64;
        assert_eq!(shown + read.get("subQueriesLeftOut").unwrap().as_u64().unwrap(), 4_000);
    }
}
