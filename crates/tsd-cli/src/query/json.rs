//! `tsdb query --json`: the series of a result in the form of `/api/query`, with milliseconds.

use std::io::{self, Write};

use serde_json::{Value as Json, json};
use tsd_model::Value;

use super::series::Series;

/// Writes an array with an object for each series, one series per line.
pub(super) fn write(out: &mut impl Write, series: impl Iterator<Item = Series>) -> io::Result<()> {
    let mut separator = "[";
    for series in series {
        write!(out, "{separator}{}", object(&series))?;
        separator = ",\n ";
    }
    writeln!(out, "{}]", if separator == "[" { "[" } else { "" })
}

fn object(series: &Series) -> Json {
    let Series { metric, tags, aggregate_tags, points } = series;
    let tags: Json = tags.iter().cloned().collect();
    let points: Json =
        points.iter().map(|(time_ms, value)| (time_ms.to_string(), number(*value))).collect();
    json!({ "metric": metric, "tags": tags, "aggregateTags": aggregate_tags, "dps": points })
}

/// A value. Values that are not JSON numbers are texts, as Java writes them.
fn number(value: Value) -> Json {
    match value {
        Value::Integer(integer) => json!(integer),
        Value::Float(float) if float.is_finite() => json!(float),
        Value::Float(float) => json!(tsd_model::java_double(float)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn written(series: Vec<Series>) -> String {
        let mut out = Vec::new();
        write(&mut out, series.into_iter()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn series_are_objects_with_their_points_in_order() {
        let series = |metric: &str| Series {
            metric: metric.to_owned(),
            tags: vec![("host".to_owned(), "a\"".to_owned())],
            aggregate_tags: vec!["dc".to_owned()],
            points: vec![
                (1_000, Value::Integer(1)),
                (1_500, Value::Float(0.5)),
                (2_000, Value::Float(f64::NAN)),
            ],
        };
        let object = |metric: &str| {
            format!(
                r#"{{"metric":"{metric}","tags":{{"host":"a\""}},"aggregateTags":["dc"],"dps":{{"1000":1,"1500":0.5,"2000":"NaN"}}}}"#
            )
        };
        assert_eq!(written(vec![series("m")]), format!("[{}]\n", object("m")));
        assert_eq!(
            written(vec![series("m"), series("n")]),
            format!("[{},\n {}]\n", object("m"), object("n"))
        );
        assert_eq!(written(Vec::new()), "[]\n");
    }
}
