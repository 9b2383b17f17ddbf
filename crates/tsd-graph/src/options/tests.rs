#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn parse(name: &'static str, value: &str) -> Result<PlotOptions, PlotOptionError> {
    PlotOptions::parse(|asked| (asked == name).then_some(value))
}

#[track_caller]
fn refuse(name: &'static str, value: &str, problem: PlotOptionProblem) {
    let error = parse(name, value).unwrap_err();
    assert_eq!((error.name, error.problem), (name, problem), "{value}");
}

#[test]
fn sizes_are_bounded() {
    let size = |value| parse("wxh", value).unwrap().size;
    assert_eq!(size("300x200"), PlotSize { width: 300, height: 200 });
    assert_eq!(size(""), PlotSize::default());
    let limit = || PlotOptionProblem::SizeLimit { least: 100, most: 4_096 };
    for value in ["99x100", "100x99", "4097x100", "100000x100000", "99999999999999999999x100"] {
        refuse("wxh", value, limit());
    }
    for value in ["300", "x", "300x", "x200", "300X200", "-300x200", "3e2x200", "300x200x1"] {
        refuse("wxh", value, PlotOptionProblem::Size);
    }
}

#[test]
fn ranges_have_two_ends() {
    let range = |value| {
        let range = parse("yrange", value).unwrap().y.range;
        (range.from, range.to)
    };
    assert_eq!(range("[0:10]"), (Some(0.0), Some(10.0)));
    assert_eq!(range("[-1.5e3:]"), (Some(-1_500.0), None));
    assert_eq!(range("[:.5]"), (None, Some(0.5)));
    assert_eq!(range("[\"10\":*]"), (Some(10.0), None));
    assert_eq!(range("[10:0]"), (Some(10.0), Some(0.0)));
    for value in ["", "0:1", "[0]", "[0:1", "[a:b]", "[nan:1]", "[inf:1]", "[0:1:2]", "[0: 1]"] {
        refuse("yrange", value, PlotOptionProblem::Range);
    }
    for value in ["[1:1]", "[0:1e400]", "[-1e308:1e308]"] {
        refuse("y2range", value, PlotOptionProblem::RangeLimit);
    }
}

#[test]
fn logarithmic_axes_have_positive_ends() {
    let parse = |range: &'static str| {
        PlotOptions::parse(|name| match name {
            "yrange" => Some(range),
            "ylog" => Some(""),
            _ => None,
        })
    };
    assert!(parse("[1:10]").unwrap().y.is_log);
    assert!(parse("[:]").is_ok());
    assert_eq!(parse("[0:10]").unwrap_err().problem, PlotOptionProblem::LogRange);
}

#[test]
fn key_placements_have_gnuplots_words() {
    let key = |value| parse("key", value).unwrap().key;
    let place = |is_outside, across, down| {
        Some(KeyPlacement { is_outside, across, down, is_boxed: false, is_horizontal: false })
    };
    assert_eq!(key("top left"), place(false, KeySide::Start, KeySide::Start));
    assert_eq!(key("bottom center"), place(false, KeySide::Center, KeySide::End));
    assert_eq!(key("center right"), place(false, KeySide::End, KeySide::Center));
    let horizontal =
        KeyPlacement { is_horizontal: true, is_boxed: true, ..KeyPlacement::default() };
    assert_eq!(
        key("out center top horiz box"),
        Some(KeyPlacement { is_outside: true, across: KeySide::Center, ..horizontal })
    );
    assert_eq!(key(" horiz box"), Some(horizontal));
    assert_eq!(key("off"), None);
    assert!(parse("key", "").is_err());
    refuse("key", "top;system", PlotOptionProblem::Key);
    let both = PlotOptions::parse(|name| matches!(name, "key" | "nokey").then_some("top"));
    assert_eq!(both.unwrap().key, None);
}

#[test]
fn texts_have_no_characters_of_commands() {
    let title = |value| parse("title", value).unwrap().title.unwrap();
    assert_eq!(title("requests/s (95%), größe"), "requests/s (95%), größe");
    for c in "\"'\\$;{}<>|!?".chars() {
        refuse("title", &format!("a{c}b"), PlotOptionProblem::Character(c));
    }
    for name in ["title", "ylabel", "y2label", "yformat", "xformat", "key", "style", "yrange"] {
        refuse(name, "a`id`", PlotOptionProblem::BackTick);
        refuse(name, "a\nb", PlotOptionProblem::Character('\n'));
    }
    refuse("ylabel", &"x".repeat(300), PlotOptionProblem::TooLong(256));
    let error = parse("title", &"\n".repeat(300)).unwrap_err().to_string();
    assert!(error.starts_with("Invalid title (\"\\n"), "{error}");
    assert!(error.len() < 300, "{error}");
}

#[test]
fn colors_are_hexadecimal() {
    assert_eq!(parse("fgcolor", "x0aFf10").unwrap().foreground, Color::rgb(0x0a_ff_10));
    assert_eq!(parse("bgcolor", "X000000").unwrap().background, Some(Color::BLACK));
    assert_eq!(parse("bgcolor", "transparent").unwrap().background, None);
    for value in ["", "red", "#ffffff", "xfffff", "xfffffff", "xggggggg", "x+12345", "xéééé"] {
        refuse("bgcolor", value, PlotOptionProblem::Color);
        refuse("fgcolor", value, PlotOptionProblem::Color);
    }
}

#[test]
fn numbers_are_formatted_as_by_gnuplot() {
    let render = |format, value| parse("yformat", format).unwrap().y.format.render(value, 6);
    for (format, value, expected) in [
        ("%g", 0.0, "0"),
        ("%g", 0.1, "0.1"),
        ("%g", 1e6, "1e+06"),
        ("%g", 123_456.0, "123456"),
        ("%g", -1.5e-7, "-1.5e-07"),
        ("%.2f", 1.005, "1.00"),
        ("%08.3f", -2.71528, "-002.715"),
        ("%+d", 5.0, "+5"),
        ("%e", 12_345.678, "1.234568e+04"),
        ("%.1e", 0.0, "0.0e+00"),
        ("%s%c", 1_500_000.0, "1.5M"),
        ("%s%c", 0.002, "2m"),
        ("%.0s%c", 999_999.9, "1M"),
        ("%.1s %cB/s", 2_500.0, "2.5 kB/s"),
        ("%s%c", 0.0, "0"),
        ("%.0b%BB", 2_097_152.0, "2MiB"),
        ("%b %B", 512.0, "512"),
        ("%t*10^%T", 2_500.0, "2.5*10^3"),
        ("%s*10^%S", 2_500.0, "2.5*10^3"),
        ("%x", 255.0, "ff"),
        ("%X", 255.0, "FF"),
        ("%o", 8.0, "10"),
        ("%.0f%%", 95.0, "95%"),
        ("%6.1f", 2.5, "   2.5"),
        ("no number", 1.0, "no number"),
        ("%G", 1e9, "1E+09"),
        ("%.2Ppi", std::f64::consts::TAU, "2pi"),
    ] {
        assert_eq!(render(format, value), expected, "{format} {value}");
    }
    for format in ["%", "%5", "%.f%", "%n", "%99999f", "%.99f", "%*d", "%hd"] {
        assert!(
            matches!(
                parse("yformat", format).unwrap_err().problem,
                PlotOptionProblem::NumberFormat(_)
            ),
            "{format}"
        );
    }
}

#[test]
fn times_are_formatted_as_by_strftime() {
    let time = "2013-01-01T13:02:03Z".parse::<Timestamp>().unwrap();
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC);
    let render = |format| parse("xformat", format).unwrap().time_format.unwrap().render(&zoned);
    assert_eq!(render("%a %d %H:%M"), "Tue 01 13:02");
    assert_eq!(render("%Y/%m/%d"), "2013/01/01");
    assert_eq!(render("%H%%"), "13%");
    for format in ["", "%", "%999d", "%Q!", "\"%d\""] {
        assert!(parse("xformat", format).is_err(), "{format}");
    }
}

#[test]
fn styles_and_smoothings_are_known_words() {
    assert_eq!(parse("style", "linespoint").unwrap().style, PlotStyle::LinesPoints);
    assert_eq!(parse("style", "dots").unwrap().style, PlotStyle::Dots);
    refuse("style", "linespoint;", PlotOptionProblem::Style);
    refuse("style", "", PlotOptionProblem::Style);
    assert_eq!(parse("smooth", "unique").unwrap().smoothing, Some(Smoothing::Unique));
    assert_eq!(parse("smooth", "csplines").unwrap().smoothing, Some(Smoothing::CSplines));
    for refused in ["", "path", "bezier", "zsort"] {
        refuse("smooth", refused, PlotOptionProblem::Smoothing);
    }
}

proptest! {
    #[test]
    fn any_option_is_parsed_or_refused(at in 0..PlotOptions::NAMES.len(), value: String) {
        let _ = parse(PlotOptions::NAMES[at], &value);
    }

    #[test]
    fn any_format_renders_any_number(
        format in "[%0-9.a-zA-Z +-]{0,12}", value in proptest::num::f64::ANY,
    ) {
        if let Ok(options) = parse("yformat", &format) {
            prop_assert!(options.y.format.render(value, 6).chars().count() <= 64);
        }
    }
}
