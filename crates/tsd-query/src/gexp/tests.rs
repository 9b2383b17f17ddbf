#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use tsd_model::{PointColumns, Value};

use super::*;
use crate::{error::GexpError, pipeline::NamedSeries};

#[track_caller]
fn check_error(text: &str, expected: GexpError) {
    let error = Gexp::parse(text).and_then(|gexp| gexp.evaluate((0, 10_000), &series)).unwrap_err();
    assert_eq!(error, expected.into(), "{text}");
}

/// Series `a` and `b`: points each second. They are leaked, since `evaluate` borrows them.
fn series(metric: &str, _offset_ms: i64) -> (usize, &'static [NamedSeries]) {
    let values: &[f64] = match metric {
        "sum:a" => &[1.0, -2.0, 3.0],
        "sum:b" => &[5.0, 0.0, 2.0],
        "sum:short" => &[1.0],
        _ => &[],
    };
    let mut points = PointColumns::default();
    for (i, value) in values.iter().enumerate() {
        points.push(i as i64 * 1000, Value::Float(*value));
    }
    let metric = metric.replace("sum:", "");
    (0, vec![NamedSeries { metric, points, ..NamedSeries::default() }].leak())
}

#[track_caller]
fn check(text: &str, expected: &[f64]) {
    let result = Gexp::parse(text).unwrap().evaluate((0, 10_000), &series).unwrap();
    let points = &result[0].series.points;
    let got: Vec<_> = (0..points.len())
        .map(|i| match points.value(i) {
            Some(Value::Float(v)) => v,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(got, expected, "{text}");
}

#[test]
fn functions_match_opentsdb() {
    check("scale(sum:a,-2)", &[-2.0, 4.0, -6.0]);
    check("absolute(sum:a)", &[1.0, 2.0, 3.0]);
    check("firstDiff(sum:a)", &[0.0, -3.0, 5.0]);
    check("movingAverage(sum:a,2)", &[0.0, -0.5, 0.5]);
    check("movingAverage(sum:a,'2s')", &[0.0, 0.0, 0.5]);
    check("sum(sum:a,sum:b)", &[6.0, -2.0, 5.0]);
    check("difference(sum:a,sum:b,sum:b)", &[-9.0, -2.0, -1.0]);
    check("multiply( sum:a , sum:b )", &[5.0, -0.0, 6.0]);
    check("divide(sum:a,sum:b)", &[0.2, 0.0, 1.5]);
    check("scale(absolute(sum:a),10) and more", &[10.0, 20.0, 30.0]);
    check("alias(sum:a,x,y)", &[1.0, -2.0, 3.0]);
}

fn moving_average(values: &[f64], window: &str) -> Vec<u64> {
    let mut points = PointColumns::default();
    for (i, value) in values.iter().enumerate() {
        points.push(i as i64 * 1000, Value::Float(*value));
    }
    let averages = super::moving_average::moving_average(&points, window, &mut Unlimited).unwrap();
    assert_eq!(averages.times_ms, points.times_ms);
    averages.bits
}

/// To walk over all missing values for each average would take 10^12 steps.
#[test]
fn missing_values_take_no_time_in_a_window_of_points() {
    let mut values = vec![f64::NAN; 2_000_000];
    values[0] = 2.0;
    values[1_000_000] = 6.0;
    let averages = moving_average(&values, "2");
    assert!(averages[..1_000_000].iter().all(|bits| *bits == 0.0_f64.to_bits()));
    assert!(averages[1_000_000..].iter().all(|bits| *bits == 4.0_f64.to_bits()));
}

#[test]
fn shifted_points_outside_the_range_are_cut() {
    let result = Gexp::parse("timeShift(sum:a,'9s')").unwrap().evaluate((0, 10_000), &series);
    assert_eq!(result.unwrap()[0].series.points.times_ms, [9_000, 10_000]);
}

/// Issue 37: the range that is read is the one that a function moves into the query range.
#[test]
fn metrics_are_read_where_functions_move_them_from() {
    let gexp = Gexp::parse("sum(timeShift(scale(shift(sum:a,'1hr'),2),'1day'),sum:a)").unwrap();
    let offsets: Vec<_> = gexp.sub_queries().unwrap().iter().map(|sub| sub.offset_ms).collect();
    assert_eq!(offsets, [90_000_000, 0]);
}

/// Issue 37, case C09.
#[test]
fn tag_values_may_have_colons() {
    let gexp = Gexp::parse("scale(sum:a{host=h:8083,dc=x},2)").unwrap();
    let filters = &gexp.sub_queries().unwrap()[0].filters;
    assert_eq!(filters[0].filter, "h:8083");
}

/// Issue 37, case B32.
#[test]
fn offsets_have_a_known_unit() {
    for text in ["1fortnight", "1h30m", "1.5h"] {
        let error = Gexp::parse(&format!("timeShift(sum:a,'{text}')")).unwrap_err();
        let suffix = crate::time::DurationError::Suffix(text.into());
        assert_eq!(error, GexpError::Offset(suffix).into());
    }
}

/// Issue 37.
#[test]
fn a_function_inside_a_shift_sees_the_moved_range() {
    // Of the points at 0, 1 and 2 s the average begins at 1 s, which the shift moves to 9 s.
    let gexp = Gexp::parse("timeShift(movingAverage(sum:a,2),'8s')").unwrap();
    let result = gexp.evaluate((9_000, 10_000), &series).unwrap();
    assert_eq!(result[0].series.points.times_ms, [9_000, 10_000]);
    assert_eq!(result[0].series.points.value(1), Some(Value::Float(0.5)));
}

#[test]
fn metrics_are_listed_once_in_order() {
    let gexp = Gexp::parse("sumSeries(sum:1m-avg:a{host=*,dc=x|y},scale(max:rate:b,1),max:rate:b)");
    let gexp = gexp.unwrap();
    let texts: Vec<_> = gexp.metrics.iter().map(|metric| metric.text.as_str()).collect();
    assert_eq!(texts, ["sum:1m-avg:a{host=*,dc=x|y}", "max:rate:b"]);
    let subs = gexp.sub_queries().unwrap();
    assert_eq!(subs[0].filters.len(), 2);
    assert!(subs[1].rate);
}

#[test]
fn invalid_expressions_are_rejected() {
    check_error("nosuch(sum:a)", GexpError::UnknownFunction("nosuch".into()));
    for text in ["scale(sum:a", "", "scale(sum:a{host=web*},2)", "scale()"] {
        check_error(text, GexpError::Grammar(text.into()));
    }
    check_error("alias(sum:a)", GexpError::NoAlias);
    check_error("sum(sum:a)", GexpError::Sets { min: 2, max: 26, given: 1 });
    check_error("sum(sum:a,sum:short)", GexpError::DifferentLengths);
    check_error("scale(sum:a,x)", GexpError::Factor);
    check_error("scale(sum:a,1.2.3)", GexpError::FactorNumber);
    check_error("highestMax(sum:a,x)", GexpError::Count("x".into()));
    check_error("highestCurrent(sum:a,0)", GexpError::CountNotPositive);
    check_error("scale(3,sum:a)", GexpError::ParameterBeforeInput("3".into()));
    check_error("movingAverage(sum:a,0)", GexpError::WindowNotPositive);
    check_error("movingAverage(sum:a,x)", GexpError::Window("x".into()));
    let (unit, window) = ("x".into(), "'2x'".into());
    check_error("movingAverage(sum:a,'2x')", GexpError::WindowUnit { unit, window });
    let deep = format!("{}sum:a{}", "absolute(".repeat(1000), ")".repeat(1000));
    assert!(matches!(Gexp::parse(&deep), Err(QueryError::Gexp(GexpError::TooDeep { .. }))));
    let long = format!("scale(sum:{},2)", "a".repeat(20_000));
    assert!(matches!(Gexp::parse(&long), Err(QueryError::Gexp(GexpError::TooLong { .. }))));
}

proptest! {
    #[test]
    fn windows_of_points_have_the_last_values_that_are_present(
        values in prop::collection::vec(prop::option::of(-1e6..1e6_f64), 0..40), n in 1_usize..6,
    ) {
        let values: Vec<f64> = values.into_iter().map(|v| v.unwrap_or(f64::NAN)).collect();
        let expected: Vec<u64> = (0..values.len())
            .map(|i| {
                let last = values[..=i].iter().rev().filter(|v| !v.is_nan()).take(n);
                let (count, sum) = last.fold((0, 0.0), |(count, sum), v| (count + 1, sum + v));
                if count < n { 0.0_f64 } else { sum / count as f64 }.to_bits()
            })
            .collect();
        prop_assert_eq!(moving_average(&values, &n.to_string()), expected);
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text in "\\PC*") {
        let _ = Gexp::parse(&text);
    }

    #[test]
    fn text_near_the_grammar_is_parsed_or_rejected(text in "(scale|sum)\\([a-z:{}=*,'()0-9 ]{0,30}") {
        if let Ok(gexp) = Gexp::parse(&text) {
            let _ = gexp.evaluate((0, 10_000), &series);
        }
    }
}
