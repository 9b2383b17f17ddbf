//! Bodies and parameters about meta objects, trees and names. Accepted objects are rendered and
//! read again.

use tsd_model::{
    CustomFields, NamedUidMeta, SeriesMeta, Tree, TreeDefinition, TreeId, TsMeta, Uid, UidKind,
    UidMeta,
};
use tsd_protocol::{
    ApiError, LookupRequest, QueryString, SearchType, parse_branch_uri, parse_search_body,
    parse_search_uri, parse_series_text, parse_tree_body, parse_tree_id, parse_tree_rule_body,
    parse_tree_rule_uri, parse_tree_rules_body, parse_tree_series_body, parse_tree_series_uri,
    parse_tree_uri, parse_ts_meta_body, parse_ts_meta_uri, parse_uid_assign_body,
    parse_uid_meta_body, parse_uid_meta_uri, parse_uid_rename_body, parse_uid_uri,
    render_series_meta, render_tree, render_tree_rule, render_uid_meta, search_response,
    search_text, write_json_string,
};
use tsd_query::Clock;

/// Longest rendered error, bytes: its texts are bounded, and escapes make them longer.
const MAX_ERROR_BYTES: usize = 512 << 10;

fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).unwrap_or_default()
}

/// The parsed object; `None` for an error, which must have a reason and an error status.
fn accepted<T>(parsed: Result<T, ApiError>) -> Option<T> {
    let error = match parsed {
        Ok(parsed) => return Some(parsed),
        Err(error) => error,
    };
    assert!((400..600).contains(&error.status), "{error:?}");
    assert!(!error.message.is_empty(), "{error:?}");
    let rendered = error.render();
    assert!(rendered.starts_with("{\"error\":{") && rendered.len() <= MAX_ERROR_BYTES, "an error");
    None
}

/// Parses a body that is one document: text after it is an error.
fn document<T>(body: &str, parse: impl Fn(&str) -> Result<T, ApiError>) -> Option<T> {
    let parsed = accepted(parse(body))?;
    for after in ["x", ",", "{}", "]"] {
        assert!(accepted(parse(&format!("{body} {after}"))).is_none(), "{after} after {body:?}");
    }
    Some(parsed)
}

fn sorted(mut custom: Option<CustomFields>) -> Option<CustomFields> {
    if let Some(fields) = &mut custom {
        fields.sort();
    }
    custom
}

/// Requests of `/api/uid/uidmeta` and `/api/uid/tsmeta`.
pub(crate) fn meta_body(input: &[u8]) {
    let body = text(input);
    if let Some(request) = document(body, parse_uid_meta_body) {
        let kind = request.kind.unwrap_or(UidKind::Metric);
        let edited = |request: tsd_protocol::UidMetaRequest| {
            let meta = request.edit.merged(kind, None, true);
            UidMeta { custom: sorted(meta.custom), ..meta }
        };
        let meta = edited(request);
        let named = named(meta.clone());
        let rendered = String::from_utf8(render_uid_meta(&named)).expect("UTF-8");
        let again = parse_uid_meta_body(&rendered).expect("what was written is read");
        assert_eq!(again.kind, Some(kind), "{rendered}");
        assert_eq!(edited(again), meta, "{rendered}");
    }
    if let Some(request) = document(body, parse_ts_meta_body) {
        let edited = |request: tsd_protocol::TsMetaRequest| {
            let meta = request.edit.merged(TsMeta::new("01", 0), true);
            TsMeta { custom: sorted(meta.custom), ..meta }
        };
        let meta = edited(request);
        let metric = named(UidMeta::new(UidKind::Metric, 0));
        let object = SeriesMeta {
            meta: meta.clone(),
            metric,
            tags: Vec::new(),
            last_received: 0,
            data_points: 0,
        };
        let rendered = String::from_utf8(render_series_meta(&object)).expect("UTF-8");
        let again = parse_ts_meta_body(&rendered).expect("what was written is read");
        // Compared as text, since NaN is not equal to itself.
        assert_eq!(format!("{:?}", edited(again)), format!("{meta:?}"), "{rendered}");
    }
    if let Ok(query) = QueryString::parse(body) {
        let _ = accepted(parse_uid_uri(&query));
        let _ = accepted(parse_uid_meta_uri(&query));
        let _ = accepted(parse_ts_meta_uri(&query));
    }
    if let Some((metric, _)) = accepted(parse_series_text(body)) {
        assert!(!metric.is_empty(), "a metric");
    }
}

fn named(meta: UidMeta) -> NamedUidMeta {
    let uid = Uid::try_new(&[0, 0, 1]).expect("a UID");
    NamedUidMeta { uid, name: "n".to_owned(), meta }
}

/// Requests of `/api/tree`.
pub(crate) fn tree_body(input: &[u8]) {
    let body = text(input);
    if let Some(request) = document(body, parse_tree_body) {
        let edited = |request: &tsd_protocol::TreeRequest| {
            request.edit.merged(TreeDefinition::default(), true)
        };
        let definition = edited(&request);
        let id = TreeId::try_new(1).expect("a number");
        let rendered = String::from_utf8(render_tree(&Tree::new(id, definition.clone())));
        let rendered = rendered.expect("UTF-8");
        let again = parse_tree_body(&rendered).expect("what was written is read");
        assert_eq!((again.tree_id, edited(&again)), (1, definition), "{rendered}");
    }
    if let Some(edit) = document(body, parse_tree_rule_body)
        && let Ok(Some(rule)) = edit.merged(None, true)
    {
        let rendered = String::from_utf8(render_tree_rule(&rule)).expect("UTF-8");
        let again = parse_tree_rule_body(&rendered).expect("what was written is read");
        assert_eq!(again.merged(None, true), Ok(Some(rule)), "{rendered}");
    }
    if let Some((tree, rules)) = document(body, parse_tree_rules_body) {
        assert!(rules.iter().all(|rule| rule.tree_id == tree), "rules of one tree");
        assert!(!rules.is_empty(), "a rule at least");
    }
    let _ = document(body, parse_tree_series_body);
    if let Ok(query) = QueryString::parse(body) {
        let _ = accepted(parse_tree_uri(&query));
        let _ = accepted(parse_tree_id(&query));
        let _ = accepted(parse_tree_rule_uri(&query));
        let _ = accepted(parse_tree_series_uri(&query));
        if let Some(row) = accepted(parse_branch_uri(&query)) {
            assert!(row.len() >= 2, "a row has the number of its tree");
        }
    }
}

/// Bodies of `/api/uid/assign` and `/api/uid/rename`.
pub(crate) fn uid_body(input: &[u8]) {
    let body = text(input);
    if let Some(names) = document(body, parse_uid_assign_body) {
        let rendered = object(&names, |out, names: &Vec<String>| {
            list(out, b'[', names, |out, name| write_json_string(out, name));
            out.push(b']');
        });
        assert_eq!(parse_uid_assign_body(&rendered), Ok(names), "{rendered}");
    }
    if let Some(fields) = document(body, parse_uid_rename_body) {
        let rendered = object(&fields, |out, text| write_json_string(out, text));
        assert_eq!(parse_uid_rename_body(&rendered), Ok(fields), "{rendered}");
    }
}

fn list<T>(out: &mut Vec<u8>, open: u8, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, item);
    }
}

fn object<V>(fields: &[(String, V)], write: impl Fn(&mut Vec<u8>, &V)) -> String {
    let mut out = Vec::new();
    list(&mut out, b'{', fields, |out, (key, value)| {
        write_json_string(out, key);
        out.push(b':');
        write(out, value);
    });
    out.push(b'}');
    String::from_utf8(out).expect("UTF-8")
}

/// Requests of `/api/search` for meta objects and annotations.
pub(crate) fn search_body(input: &[u8]) {
    let body = text(input);
    let mut requests: Vec<LookupRequest> = document(body, parse_search_body).into_iter().collect();
    if let Ok(query) = QueryString::parse(body) {
        requests.extend(accepted(parse_search_uri(&query)));
    }
    for request in requests {
        let _ = accepted(search_text(&request));
        if let Some(Some((start, end))) =
            accepted(request.range_secs(&Clock::utc(1_500_000_000_000)))
        {
            assert!(start <= end, "a range");
        }
        let mut response = search_response(SearchType::Tsuids, &request, std::iter::empty(), 0, 0);
        let mut out = Vec::new();
        // A query may be longer than the limit of a chunk.
        while response.write(&mut out, 16 * body.len() + (1 << 20)) {}
        assert!(std::str::from_utf8(&out).is_ok(), "a response is UTF-8");
    }
}
