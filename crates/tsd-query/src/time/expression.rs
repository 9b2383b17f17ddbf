//! Time expressions: `1h-ago`, `2013/01/01-00:00:31`, `1356998400`, `now`.
//!
//! The format of a text is determined by fixed rules, in order. Some results are surprising
//! (`1356998400.5` is a time in 1970), but saved dashboards contain such texts.

use jiff::{civil, tz::TimeZone};

use super::{Clock, Duration, find_zone};
use crate::error::{TimeError, TimeProblem};

/// Parses a time expression to epoch milliseconds; `None` if the text is empty.
///
/// `zone_name` is the time zone of the request, if any; it applies to calendar text only.
pub fn parse_time(
    text: &str,
    zone_name: Option<&str>,
    clock: &Clock,
) -> Result<Option<i64>, TimeError> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |problem| Err(TimeError::Invalid { text: text.to_owned(), problem });
    if let Some(digits) = text.strip_suffix("ms")
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
    {
        return match digits.parse() {
            Ok(ms) => Ok(Some(ms)),
            Err(_) => invalid(TimeProblem::TooLong(digits.to_owned())),
        };
    }
    if text.eq_ignore_ascii_case("now") {
        return Ok(Some(clock.now_ms));
    }
    if let Some(head) = strip_ago(text) {
        let duration = Duration::parse(head).map_err(TimeError::Duration)?;
        return Ok(Some(clock.now_ms.saturating_sub(duration.millis)));
    }
    if text.contains(['/', ':']) {
        return parse_calendar(text, zone_name, clock).map(Some);
    }
    if text.contains('.') {
        return match dotted(text) {
            Some(ms) => Ok(Some(ms)),
            None => invalid(TimeProblem::Fraction),
        };
    }
    match parse_long(text) {
        Err(problem) => invalid(problem),
        Ok(n) if n < 0 => invalid(TimeProblem::Negative),
        Ok(n) if text.len() <= 10 => Ok(Some(n * 1000)),
        Ok(n) => Ok(Some(n)),
    }
}

/// The text before `-ago`, ignoring case.
fn strip_ago(text: &str) -> Option<&str> {
    let at = text.len().checked_sub(4)?;
    let tail = text.get(at..)?;
    if tail.eq_ignore_ascii_case("-ago") { text.get(..at) } else { None }
}

/// Parses ten digits, a dot, and one to three digits: the digits without the dot are milliseconds.
fn dotted(text: &str) -> Option<i64> {
    let (secs, fraction) = text.split_once('.')?;
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if secs.len() != 10 || !(1..=3).contains(&fraction.len()) {
        return None;
    }
    if !all_digits(secs) || !all_digits(fraction) {
        return None;
    }
    format!("{secs}{fraction}").parse().ok()
}

/// Parses a signed decimal.
fn parse_long(text: &str) -> Result<i64, TimeProblem> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() {
        return Err(TimeProblem::OnlySign);
    }
    if let Some(c) = digits.chars().find(|c| !c.is_ascii_digit()) {
        return Err(TimeProblem::Character(c));
    }
    if digits.len() > 19 {
        return Err(TimeProblem::TooLong(text.to_owned()));
    }
    let is_negative = text.starts_with('-');
    let flow = || if is_negative { TimeProblem::Underflow } else { TimeProblem::Overflow };
    text.parse().map_err(|_| flow())
}

/// Parses calendar text, whose pattern is chosen by its length.
fn parse_calendar(text: &str, zone_name: Option<&str>, clock: &Clock) -> Result<i64, TimeError> {
    let pattern: &str = match text.encode_utf16().count() {
        10 => "y/M/d",
        16 if text.contains('-') => "y/M/d-H:m",
        16 => "y/M/d H:m",
        19 if text.contains('-') => "y/M/d-H:m:s",
        19 => "y/M/d H:m:s",
        _ => return Err(TimeError::DateLength(text.to_owned())),
    };
    let zone = match zone_name {
        None | Some("") => clock.zone.clone(),
        Some(name) => find_zone(name).ok_or_else(|| TimeError::Zone(name.to_owned()))?,
    };
    CalendarFields::parse(text, pattern)
        .and_then(|fields| fields.epoch_ms(&zone))
        .ok_or_else(|| TimeError::Date(text.to_owned()))
}

/// Fields of a calendar text, which may overflow: `2013/13/45` is 14 February 2014.
#[derive(Debug)]
struct CalendarFields {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl CalendarFields {
    fn parse(text: &str, pattern: &str) -> Option<Self> {
        let mut fields = Self { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0 };
        let mut rest = text;
        for c in pattern.chars() {
            let field = match c {
                'y' => &mut fields.year,
                'M' => &mut fields.month,
                'd' => &mut fields.day,
                'H' => &mut fields.hour,
                'm' => &mut fields.minute,
                's' => &mut fields.second,
                literal => {
                    rest = rest.strip_prefix(literal)?;
                    continue;
                }
            };
            let trimmed = rest.trim_start_matches([' ', '\t']);
            let unsigned = trimmed.strip_prefix('-').unwrap_or(trimmed);
            let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
            let number: i64 = unsigned.get(..end)?.parse().ok()?;
            *field = if unsigned.len() == trimmed.len() { number } else { -number };
            rest = unsigned.get(end..)?;
        }
        Some(fields)
    }

    fn epoch_ms(&self, zone: &TimeZone) -> Option<i64> {
        let months = self.year.checked_mul(12)?.checked_add(self.month.checked_sub(1)?)?;
        let year = i16::try_from(months.div_euclid(12)).ok()?;
        let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
        let seconds = self
            .day
            .checked_sub(1)?
            .checked_mul(86_400)?
            .checked_add(self.hour.checked_mul(3_600)?)?
            .checked_add(self.minute.checked_mul(60)?)?
            .checked_add(self.second)?;
        let first = civil::DateTime::new(year, month, 1, 0, 0, 0, 0).ok()?;
        let local = first.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()?;
        // Like Java: of two equal wall-clock times the later one (standard time); a wall-clock time
        // that does not exist moves forward.
        let instant = zone.to_ambiguous_timestamp(local).later().ok()?;
        Some(instant.as_millisecond())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::DurationError;

    const NOW_MS: i64 = 1_357_300_800_000;

    #[track_caller]
    fn check(text: &str, expected: Result<i64, TimeError>) {
        check_in(text, None, expected);
    }

    #[track_caller]
    fn check_in(text: &str, zone: Option<&str>, expected: Result<i64, TimeError>) {
        let got = parse_time(text, zone, &Clock::utc(NOW_MS));
        assert_eq!(got, expected.map(Some), "{text}");
    }

    fn invalid(text: &str, problem: TimeProblem) -> Result<i64, TimeError> {
        Err(TimeError::Invalid { text: text.into(), problem })
    }

    #[test]
    fn text_length_distinguishes_seconds_from_milliseconds() {
        check("1356998400", Ok(1_356_998_400_000));
        check("0", Ok(0));
        check("1356998400000", Ok(1_356_998_400_000));
        check("00001356998400", Ok(1_356_998_400));
        check("1356998400500ms", Ok(1_356_998_400_500));
        check("5ms", Ok(5));
    }

    #[test]
    fn empty_text_is_none() {
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
        check("-ago", Err(TimeError::Duration(DurationError::Empty)));
        check("5q-ago", Err(TimeError::Duration(DurationError::Suffix("5q".into()))));
    }

    #[test]
    fn calendar_pattern_is_chosen_by_length() {
        check("2013/01/01", Ok(1_356_998_400_000));
        check("2013/01/01-00:30", Ok(1_357_000_200_000));
        check("2013/01/01 00:30", Ok(1_357_000_200_000));
        check("2013/01/01-00:00:31", Ok(1_356_998_431_000));
        check("2013/01/01 00:00:31", Ok(1_356_998_431_000));
        check("2013/13/45", Ok(1_392_336_000_000));
        check("2013/1/1", Err(TimeError::DateLength("2013/1/1".into())));
        check("2013/ab/01", Err(TimeError::Date("2013/ab/01".into())));
    }

    #[test]
    fn calendar_text_is_local_to_the_zone() {
        check_in("2013/01/01", Some("Asia/Kabul"), Ok(1_356_998_400_000 - 16_200_000));
        check_in("2013/01/01", Some(""), Ok(1_356_998_400_000));
        check_in("2013/01/01", Some("Nowhere"), Err(TimeError::Zone("Nowhere".into())));
        check_in("1356998400", Some("Nowhere"), Ok(1_356_998_400_000));
    }

    #[test]
    fn ambiguous_wall_times_resolve_as_in_java() {
        // 02:30 does not exist, 01:30 exists twice.
        check_in("2015/03/08-02:30", Some("America/New_York"), Ok(1_425_799_800_000));
        check_in("2015/11/01-01:30", Some("America/New_York"), Ok(1_446_359_400_000));
    }

    #[test]
    fn dots_in_times_are_ignored() {
        check("1356998400.500", Ok(1_356_998_400_500));
        check("1356998400.50", Ok(135_699_840_050));
        check("1356998400.5", Ok(13_569_984_005));
        for text in ["1356998400.5000", "135699840.500", "1356998400.", ".5", "1356998400.5a"] {
            check(text, invalid(text, TimeProblem::Fraction));
        }
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        check("-5", invalid("-5", TimeProblem::Negative));
        check("12x4", invalid("12x4", TimeProblem::Character('x')));
        check(" 12", invalid(" 12", TimeProblem::Character(' ')));
        check("-", invalid("-", TimeProblem::OnlySign));
        let long = "12345678901234567890";
        check(long, invalid(long, TimeProblem::TooLong(long.into())));
        check("9999999999999999999", invalid("9999999999999999999", TimeProblem::Overflow));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC*", zone in proptest::option::of("\\PC*")) {
            let _ = parse_time(&text, zone.as_deref(), &Clock::utc(NOW_MS));
        }

        #[test]
        fn text_near_the_grammar_is_parsed_or_rejected(text in "[-0-9/: .amsghoNW]{0,20}") {
            let _ = parse_time(&text, Some("America/New_York"), &Clock::utc(NOW_MS));
        }
    }
}
