use proptest::prelude::*;

use super::*;

const NOW_MS: i64 = 1_357_300_800_000;

#[track_caller]
fn check(text: &str, expected: Result<i64, &str>) {
    check_in(text, None, expected);
}

#[track_caller]
fn check_in(text: &str, zone: Option<&str>, expected: Result<i64, &str>) {
    let got = parse_time(text, zone, &Clock::utc(NOW_MS)).map_err(|e| e.message);
    assert_eq!(got, expected.map(Some).map_err(str::to_owned), "{text}");
}

#[test]
fn length_of_the_text_tells_seconds_from_milliseconds() {
    check("1356998400", Ok(1_356_998_400_000));
    check("0", Ok(0));
    check("1356998400000", Ok(1_356_998_400_000));
    check("00001356998400", Ok(1_356_998_400));
    check("1356998400500ms", Ok(1_356_998_400_500));
    check("5ms", Ok(5));
}

#[test]
fn empty_text_is_no_time() {
    assert_eq!(parse_time("", None, &Clock::utc(0)), Ok(None));
}

#[test]
fn relative_times_count_back_from_now() {
    check("now", Ok(NOW_MS));
    check("NOW", Ok(NOW_MS));
    check("1h-ago", Ok(NOW_MS - 3_600_000));
    check("1H-AGO", Ok(NOW_MS - 3_600_000));
    check("1h30m-ago", Ok(NOW_MS - 60_000));
    check("1n-ago", Ok(NOW_MS - 2_592_000_000));
    check("-ago", Err("Cannot parse null or empty duration"));
    check("5q-ago", Err("Invalid duration (suffix): 5q"));
}

#[test]
fn calendar_text_is_read_by_its_length() {
    check("2013/01/01", Ok(1_356_998_400_000));
    check("2013/01/01-00:30", Ok(1_357_000_200_000));
    check("2013/01/01 00:30", Ok(1_357_000_200_000));
    check("2013/01/01-00:00:31", Ok(1_356_998_431_000));
    check("2013/01/01 00:00:31", Ok(1_356_998_431_000));
    check("2013/13/45", Ok(1_392_336_000_000));
    check("2013/1/1", Err("Invalid absolute date: 2013/1/1"));
    check("2013/ab/01", Err("Invalid date: 2013/ab/01. Unparseable date: \"2013/ab/01\""));
}

#[test]
fn calendar_text_is_local_to_the_zone() {
    check_in("2013/01/01", Some("Asia/Kabul"), Ok(1_356_998_400_000 - 16_200_000));
    check_in("2013/01/01", Some(""), Ok(1_356_998_400_000));
    check_in("2013/01/01", Some("Nowhere"), Err("Invalid timezone name: Nowhere"));
    check_in("1356998400", Some("Nowhere"), Ok(1_356_998_400_000));
}

#[test]
fn doubtful_wall_times_resolve_as_in_java() {
    // 02:30 does not exist, 01:30 exists twice.
    check_in("2015/03/08-02:30", Some("America/New_York"), Ok(1_425_799_800_000));
    check_in("2015/11/01-01:30", Some("America/New_York"), Ok(1_446_359_400_000));
}

#[test]
fn dotted_times_lose_their_dot() {
    check("1356998400.500", Ok(1_356_998_400_500));
    check("1356998400.50", Ok(135_699_840_050));
    check("1356998400.5", Ok(13_569_984_005));
    for text in ["1356998400.5000", "135699840.500", "1356998400.", ".5", "1356998400.5a"] {
        let message = format!(
            "Invalid time: {text}. Millisecond timestamps must be in the format <seconds>.<ms> \
             where the milliseconds are limited to 3 digits"
        );
        check(text, Err(&message));
    }
}

#[test]
fn numbers_that_are_no_times() {
    check("-5", Err("Invalid time: -5. Negative timestamps are not supported."));
    check("12x4", Err("Invalid time: 12x4. Invalid character 'x' in 12x4"));
    check(" 12", Err("Invalid time:  12. Invalid character ' ' in  12"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*", zone in proptest::option::of("\\PC*")) {
        let _ = parse_time(&text, zone.as_deref(), &Clock::utc(NOW_MS));
    }

    #[test]
    fn texts_near_the_grammar_are_read_or_refused(text in "[-0-9/: .amsghoNW]{0,20}") {
        let _ = parse_time(&text, Some("America/New_York"), &Clock::utc(NOW_MS));
    }
}
