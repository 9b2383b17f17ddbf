#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use tsd_model::UidKind;

use super::*;
use crate::{
    request::{RawQuery, parse_m_parameter, parse_tsuid_parameter},
    time::Clock,
};

/// UIDs by name: `h` is tag key 1, `d` tag key 2, values are their own number.
fn uid_of(kind: UidKind, name: &str) -> Option<Bytes> {
    let number = match (kind, name) {
        (UidKind::Metric, "m") => 9,
        (UidKind::Tagk, "h") => 1,
        (UidKind::Tagk, "d") => 2,
        (UidKind::Tagv, value) => value.parse().ok()?,
        _ => return None,
    };
    Some(vec![0, 0, number].into())
}

fn sub_query(m: &str) -> SubQuery {
    let parsed = if m.contains('{') || m.ends_with(":m") {
        parse_m_parameter(m).unwrap()
    } else {
        parse_tsuid_parameter(m).unwrap()
    };
    let raw = RawQuery {
        start: Some("1356998400".into()),
        end: Some("1356998500".into()),
        queries: Some(vec![parsed]),
        ..RawQuery::default()
    };
    raw.validate(&Clock::utc(0)).unwrap().sub_queries.remove(0)
}

fn plan_with(m: &str, settings: &PlanSettings) -> SubQueryPlan {
    let sub = sub_query(m);
    let schema = TableSchema::opentsdb_default();
    let resolved = sub.resolve(&schema, settings, uid_of).unwrap();
    SubQueryPlan::new(&sub, &resolved, (1_356_998_400_000, 1_356_998_500_000), &schema, settings)
}

fn plan(m: &str) -> SubQueryPlan {
    plan_with(m, &PlanSettings::default())
}

/// The pattern as `key=value,value;…`, the post-scan filters by type.
fn shape(plan: &SubQueryPlan) -> (String, Vec<&'static str>) {
    let SeriesSelection::Tags(tags) = &plan.selection else { panic!("no tag pattern") };
    let pattern: Vec<_> = tags
        .wanted
        .iter()
        .map(|want| match &want.tagvs {
            None => format!("{}=*", want.tagk[2]),
            Some(values) => {
                let values: Vec<_> = values.iter().map(|v| v[2].to_string()).collect();
                format!("{}={}", want.tagk[2], values.join(","))
            }
        })
        .collect();
    (pattern.join(";"), plan.post_filters.iter().map(|p| p.filter.type_name()).collect())
}

#[track_caller]
fn check(m: &str, pattern: &str, post: &[&'static str]) {
    assert_eq!(shape(&plan(m)), (pattern.to_owned(), post.to_vec()), "{m}");
}

#[test]
fn literals_are_pushed_down_and_the_rest_is_checked_afterwards() {
    check("sum:m", "", &[]);
    check("sum:m{h=1}", "1=1", &[]);
    check("sum:m{h=2|1,d=*}", "1=1,2;2=*", &[]);
    check("sum:m{d=regexp(x),h=web*}", "1=*;2=*", &["iwildcard", "regexp"]);
    check("sum:m{h=not_literal_or(1)}", "1=*", &["not_literal_or"]);
}

#[test]
fn several_literal_filters_unite_on_the_lowest_key_and_replace_on_later_ones() {
    check("sum:m{h=1,h=2}", "1=1,2", &[]);
    check("sum:m{h=*,d=1,d=2}", "1=*;2=2", &[]);
    check("sum:m{h=*,d=1,d=regexp(x)}", "1=*;2=*", &["regexp"]);
    check("sum:m{h=1,h=regexp(x)}", "1=1", &["regexp"]);
}

#[test]
fn literals_above_the_limit_are_checked_by_name() {
    let settings = PlanSettings { expansion_limit: 2, ..PlanSettings::default() };
    let long = plan_with("sum:m{h=1|2|3}", &settings);
    assert_eq!(shape(&long), ("1=*".to_owned(), vec!["literal_or"]));
    let together = plan_with("sum:m{h=1|2,d=3}", &settings);
    assert_eq!(shape(&together), ("1=1,2;2=*".to_owned(), vec!["literal_or"]));
}

#[test]
fn group_by_keys_are_ordered_by_uid() {
    let plan = plan("sum:m{d=*,h=*}");
    assert_eq!(plan.group_by.iter().map(|k| k[2]).collect::<Vec<_>>(), [1, 2]);
    assert!(self::plan("sum:m{}{h=*}").group_by.is_empty());
}

#[test]
fn explicit_tags_widen_the_stop_key() {
    let plan = plan("sum:explicit_tags:m{h=*}");
    assert_eq!(plan.ranges[0].stop.len(), 3 + 4 + 6);
    assert!(plan.admits(&[0, 0, 1, 0, 0, 5]));
    assert!(!plan.admits(&[0, 0, 1, 0, 0, 5, 0, 0, 2, 0, 0, 1]));
    let settings = PlanSettings { fuzzy_filter: false, ..PlanSettings::default() };
    assert_eq!(plan_with("sum:explicit_tags:m{h=*}", &settings).ranges[0].stop.len(), 7);
    // Without filters there is nothing to be explicit about.
    assert!(self::plan("sum:explicit_tags:m").admits(&[0, 0, 1, 0, 0, 5]));
}

#[test]
fn unknown_names_are_refused_or_skipped() {
    let schema = TableSchema::opentsdb_default();
    let refuse = |m: &str| {
        let sub = sub_query(m);
        sub.resolve(&schema, &PlanSettings::default(), uid_of).unwrap_err().message
    };
    assert_eq!(refuse("sum:x{h=1}"), "No such name for 'metrics': 'x'");
    assert_eq!(refuse("sum:m{q=1}"), "No such name for 'tagk': 'q'");
    assert_eq!(refuse("sum:m{h=1|nope}"), "No such name for 'tagv': 'nope'");
    assert_eq!(refuse("sum:m{h=|1}"), "Missing UID name");
    let settings = PlanSettings { skip_unresolved_tagvs: true, ..PlanSettings::default() };
    assert_eq!(shape(&plan_with("sum:m{h=1|nope}", &settings)).0, "1=1");
    assert!(plan_with("sum:m{h=nope}", &settings).is_empty());
}

#[test]
fn tsuids_must_share_their_metric() {
    let plan = plan("sum:000009000001000002,000009000001000001");
    assert_eq!(plan.metric.as_ref(), [0, 0, 9]);
    assert!(plan.admits(&[0, 0, 1, 0, 0, 2]));
    assert!(!plan.admits(&[0, 0, 1, 0, 0, 3]));
    let schema = TableSchema::opentsdb_default();
    let refuse = |m: &str| {
        let sub = sub_query(m);
        sub.resolve(&schema, &PlanSettings::default(), uid_of).unwrap_err()
    };
    let error = refuse("sum:000009000001000002,000008000001000001");
    assert_eq!(error.message, "One or more TSUIDs did not share the same metric [000009] [000008]");
    assert_eq!(error.class.status(), 500);
    for text in ["sum:xyz", "sum:000009", "sum:00000900000100000"] {
        assert_eq!(refuse(text).class.status(), 500, "{text}");
    }
}

#[test]
fn names_asked_for_are_those_resolved() {
    let sub = sub_query("sum:m{h=1|2,d=regexp(x)}");
    let names = sub.names(&PlanSettings::default());
    let texts: Vec<_> =
        names.iter().map(|(kind, name)| format!("{} {name}", kind.as_str())).collect();
    assert_eq!(texts, ["metrics m", "tagk h", "tagv 1", "tagv 2", "tagk d"]);
}

#[test]
fn post_filters_see_names() {
    let plan = plan("sum:m{h=web*}");
    let tags = [0, 0, 1, 0, 0, 5];
    assert_eq!(plan.values_to_name(&tags).collect::<Vec<_>>(), [&[0, 0, 5]]);
    assert!(plan.accepts(&tags, |_| Some("web01")));
    assert!(!plan.accepts(&tags, |_| Some("db01")));
    assert!(!plan.accepts(&tags, |_| None));
}

#[test]
fn a_plan_prints_what_it_reads() {
    let text = plan("sum:m{h=1,d=regexp(x)}").to_string();
    let expected = "\
metric 000009
rows from 1356998400 to 1357002000 (1 an unbroken series)
scan [00000950E22700, 00000950E23510)
pushed down: 000001 = 000001
pushed down: 000002 = any
checked afterwards: 000002 regexp(x)
group by 000001
group by 000002
";
    assert_eq!(text, expected);
}
