#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use tsd_model::NameRule;

use super::*;

/// Telnet reply to a line, without the line end; empty for an accepted line.
fn reply_to(line: &[u8], rules: &SeriesRules) -> String {
    let read = PutLine::parse(line).and_then(|point| point.tags(rules).map(|_| ()));
    read.map_or_else(|error| format!("put: {error}"), |()| String::new())
}

#[track_caller]
fn check(line: &str, timestamp: i64, value: PointValue, tags: &[(&str, &str)]) {
    let point = PutLine::parse(line.as_bytes()).unwrap();
    assert_eq!((point.timestamp.as_given(), point.value), (timestamp, value), "{line}");
    let read = point.tags(&SeriesRules::default()).unwrap();
    let read: Vec<_> =
        read.iter().map(|(k, v)| (Latin1(k).to_string(), Latin1(v).to_string())).collect();
    let tags: Vec<_> = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    assert_eq!(read, tags, "{line}");
}

#[track_caller]
fn refuse(line: &str, expected: &str) {
    assert_eq!(
        reply_to(line.as_bytes(), &SeriesRules::default()),
        format!("put: {expected}"),
        "{line}"
    );
}

#[test]
fn good_lines_are_read() {
    use PointValue::{Double, Integer, Single};
    let host = [("host", "a")];
    check("put m 1356998400 42 host=a", 1_356_998_400, Integer(42), &host);
    check("put m 1356998400 -7 host=a", 1_356_998_400, Integer(-7), &host);
    check("put m 1356998400 +5 host=a", 1_356_998_400, Integer(5), &host);
    check("put m 1356998400 42.5 host=a", 1_356_998_400, Single(42.5), &host);
    check("put m 1356998400 42.1 host=a", 1_356_998_400, Double(42.1), &host);
    check("put m 1356998400 1e3 host=a", 1_356_998_400, Single(1_000.0), &host);
    check("put m 1356998400123 1 host=a", 1_356_998_400_123, Integer(1), &host);
    check("put m 1356998400.123 1 host=a", 1_356_998_400_123, Integer(1), &host);
    check("put m 1356998400.5 1 host=a", 13_569_984_005, Integer(1), &host);
    check("put m +1356998400 1 host=a", 1_356_998_400, Integer(1), &host);
    check("put m 4294967295999 1 host=a", 4_294_967_295_999, Integer(1), &host);
}

#[test]
fn tags_come_in_map_order_and_blanks_do_not_matter() {
    let one = PointValue::Integer(1);
    check("put m 1 1 cpu=0 host=a", 1, one, &[("host", "a"), ("cpu", "0")]);
    check("put m 1 1  host=a   cpu=0 ", 1, one, &[("host", "a"), ("cpu", "0")]);
    check("put m 1 1 host=a host=a", 1, one, &[("host", "a")]);
}

#[test]
fn tags_are_kept_raw() {
    let point = PutLine::parse(b"put sys.cpu 1 1  b=2 a=1 ").unwrap();
    assert_eq!((point.metric, point.tags_raw), (&b"sys.cpu"[..], &b" b=2 a=1 "[..]));
}

/// Lines and replies recorded from OpenTSDB 2.4.1.
#[test]
fn rejected_lines_have_opentsdbs_replies() {
    let recorded = include_str!("refused_lines.txt");
    let mut count = 0;
    for pair in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (line, expected) = pair.split_once(" => ").unwrap();
        // The telnet port reads UTF-8 as ISO-8859-1.
        assert_eq!(reply_to(line.as_bytes(), &SeriesRules::default()), expected, "{line}");
        count += 1;
    }
    assert_eq!(count, 54);
}

#[test]
fn too_few_words_are_counted_without_the_command() {
    let enough =
        |got: usize| format!("illegal argument: not enough arguments (need least 4, got {got})");
    refuse("put", &enough(0));
    refuse("put ", &enough(1));
    refuse("put m", &enough(1));
    refuse("put m 1356998400 1", &enough(3));
}

#[test]
fn empty_words_are_named() {
    refuse("put  1356998400 1 host=a", "illegal argument: empty metric name");
    refuse("put m  1 host=a", "invalid value: Empty string");
    refuse("put m 1356998400  host=a", "illegal argument: empty value");
    refuse("put m 1356998400 1 ", "illegal argument: Need at least one tag (metric=m, tags={})");
}

#[test]
fn broken_tags_are_named() {
    refuse("put m 1356998400 1 host", "illegal argument: invalid tag: host");
    refuse("put m 1356998400 1 =a", "illegal argument: invalid tag: =a");
    refuse("put m 1356998400 1 host=", "illegal argument: invalid tag: host=");
    refuse("put m 1356998400 1 a=b=c", "illegal argument: invalid tag: a=b=c");
    refuse("put m 1356998400 1 x=y ==", "illegal argument: invalid tag: ==");
    refuse(
        "put m 1356998400 1 cpu=0 host=a cpu=1",
        "illegal argument: duplicate tag: cpu=1, tags={host=a, cpu=0}",
    );
}

/// The reported error is the one that OpenTSDB checks first.
#[test]
fn checks_run_in_opentsdbs_order() {
    refuse("put  x x host", "illegal argument: empty metric name");
    refuse("put m x  host", "invalid value: Invalid character 'x' in x");
    refuse("put m 0  host", "illegal argument: invalid timestamp: 0");
    refuse("put m 1  host", "illegal argument: empty value");
    refuse("put m 1 x host", "illegal argument: invalid tag: host");
    refuse("put m 1 x a=b a=c", "illegal argument: duplicate tag: a=c, tags={a=b}");
    for time in ["9999999999999", "9999999999.999", "4294967296000"] {
        let number = time.replace('.', "");
        let text = format!(
            "illegal argument: timestamp {number} is after 2106-02-07 06:28:15 UTC, the last that a row key can \
             have"
        );
        refuse(&format!("put m {time} 1 a=b"), &text);
    }
    refuse("put m$ 99999999999999 x a=b", "invalid value: Invalid character 'x' in x");
    refuse(
        "put m$ 99999999999999 1e400 a=b",
        "illegal argument: value is NaN or Infinite: Infinity for metric=m$ \
         timestamp=99999999999999",
    );
    refuse(
        "put m$ 99999999999999 42.5 ",
        "illegal argument: bad timestamp=99999999999999 when trying to add \
         value=[66, 42, 0, 0]/11 to metric=m$, tags={}",
    );
    refuse("put m$ 1 1 ", "illegal argument: Need at least one tag (metric=m$, tags={})");
    refuse(
        "put m$ 1 1 k$=v$",
        "illegal argument: Invalid metric name (\"m$\"): illegal character: $",
    );
    refuse(
        "put m 1 1 k$=v$",
        "illegal argument: Invalid tag name with value [v$] (\"k$\"): illegal character: $",
    );
}

#[test]
fn rules_are_settings() {
    let rules = SeriesRules { max_tags: 1, names: NameRule::with_special_characters("$") };
    assert_eq!(reply_to(b"put m$ 1 1 k$=v$", &rules), "");
    assert_eq!(
        reply_to(b"put m 1 1 a=b c=d", &rules),
        "put: illegal argument: Too many tags: 2 maximum allowed: 1, tags: {a=b, c=d}"
    );
}

#[test]
fn names_are_iso_8859_1() {
    let point = PutLine::parse(b"put m\xe9 1 1 k=\xff").unwrap();
    assert_eq!(point.metric, b"m\xe9");
    assert!(point.tags(&SeriesRules::default()).is_ok());
    assert_eq!(
        reply_to(b"put m\xd7 1 1 k=v", &SeriesRules::default()),
        "put: illegal argument: Invalid metric name (\"m×\"): illegal character: ×"
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(line in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = reply_to(&line, &SeriesRules::default());
    }

    /// Generates nearly valid lines, so that they reach all checks.
    #[test]
    fn fast_path_agrees_with_the_full_parse(
        metric in "[a-z.]{0,3}",
        time in "(135699840[0-9]{1,5}|[-+]?[0-9]{1,3}|1[.]5|x|)",
        value in "([-+]?[0-9]{0,20}|[0-9]{1,3}[.][0-9]{0,3}|1e[0-9]{1,3}|0x1p3|x)",
        tags in "( ?[a-c]=[a-c]| ?[a-c=]{0,3}){0,4}",
    ) {
        let line = format!("put {metric} {time} {value} {tags}");
        let long = PutLine::parse_in_order(line.as_bytes());
        if let Some(short) = PutLine::parse_plain(line.as_bytes()) {
            match &long {
                Ok(long) => prop_assert_eq!(&short, long),
                // The fast path does not parse the tags, which are invalid.
                Err(error) => prop_assert_eq!(&short.tags(&SeriesRules::default()).unwrap_err(), error),
            }
        } else {
            prop_assert_eq!(PutLine::parse(line.as_bytes()), long);
        }
    }
}
