//! Moving averages over a number of points or a duration.

use tsd_model::{PointColumns, Value};

use crate::{
    error::{GexpError, LimitError, QueryError},
    limits::ExecutionLimits,
    number::as_double,
    time::{Duration, DurationError, TimeUnit},
};

/// Most additions for one series.
const MAX_WORK: usize = 1_000_000_000;

/// Additions between two checks of the limits.
const VALUES_PER_CHECK: usize = 4_096;

enum AverageWindow {
    Points(usize),
    Millis(i64),
}

/// Checks the text of a window.
pub(super) fn check_window(window: &str) -> Result<(), GexpError> {
    parse_window(window).map(drop)
}

/// The averages: 0 until the window is full. NaN values are skipped.
pub(super) fn moving_average(
    points: &PointColumns,
    window: &str,
    limits: &mut dyn ExecutionLimits,
) -> Result<PointColumns, QueryError> {
    let window = parse_window(window)?;
    let values: Vec<f64> =
        (0..points.len()).filter_map(|i| points.value(i)).map(as_double).collect();
    let present = values.iter().filter(|value| !value.is_nan()).count();
    let work: usize = match window {
        AverageWindow::Points(n) => values.len().saturating_mul(n.min(present)),
        AverageWindow::Millis(millis) => points
            .times_ms
            .iter()
            .enumerate()
            .map(|(i, time)| i + 1 - points.times_ms.partition_point(|t| time - t >= millis))
            .sum(),
    };
    if work > MAX_WORK {
        return Err(LimitError::MovingAverage.into());
    }
    let mut averages = PointColumns::default();
    // Points of the window without NaN, since a fill policy may have put millions of NaN between
    // two points.
    let mut seen_present = Vec::with_capacity(present);
    // Approximate additions per value; the first values need fewer.
    let per_value = work / values.len().max(1) + 1;
    let check_interval = (VALUES_PER_CHECK / per_value).max(1);
    for (i, time) in points.times_ms.iter().enumerate() {
        if i % check_interval == 0 {
            limits.check()?;
        }
        let average = match window {
            AverageWindow::Points(n) => {
                seen_present.extend(values.get(i).filter(|value| !value.is_nan()));
                over_points(&seen_present, n)
            }
            AverageWindow::Millis(millis) => {
                let seen = values.get(..=i).unwrap_or_default();
                over_time(seen, points.times_ms.get(..=i).unwrap_or_default(), millis)
            }
        };
        averages.push(*time, Value::Float(average));
    }
    Ok(averages)
}

/// Average of the last `n` values that are not NaN: NaN values extend the window.
fn over_points(seen: &[f64], n: usize) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for v in seen.iter().rev().take(n) {
        sum += v;
        count += 1;
    }
    if count < n { 0.0 } else { sum / count as f64 }
}

/// Average of the points less than `millis` old; 0 if no point is older.
fn over_time(seen: &[f64], times: &[i64], millis: i64) -> f64 {
    let Some(now) = times.last() else { return 0.0 };
    let (mut sum, mut count) = (0.0, 0_u32);
    for (time, v) in times.iter().zip(seen).rev() {
        if now - time >= millis {
            return if count == 0 { 0.0 } else { sum / f64::from(count) };
        }
        if !v.is_nan() {
            sum += v;
            count += 1;
        }
    }
    0.0
}

fn parse_window(text: &str) -> Result<AverageWindow, GexpError> {
    let unparseable = || GexpError::Window(text.to_owned());
    let Some(quoted) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) else {
        let n: i64 = text.parse().map_err(|_| unparseable())?;
        return match usize::try_from(n) {
            Ok(n) if n > 0 => Ok(AverageWindow::Points(n)),
            _ => Err(GexpError::WindowNotPositive),
        };
    };
    let unit = quoted.trim_start_matches(|c: char| c.is_ascii_digit());
    match Duration::parse_exact(quoted) {
        // OpenTSDB has no other units here.
        Ok(Duration {
            millis,
            unit: TimeUnit::Second | TimeUnit::Minute | TimeUnit::Hour | TimeUnit::Day,
        }) if !unit.contains(char::is_uppercase) => Ok(AverageWindow::Millis(millis)),
        Err(DurationError::Zero(_)) => Err(GexpError::WindowNotPositive),
        Ok(_) | Err(DurationError::NoUnit(_) | DurationError::Suffix(_)) => {
            Err(GexpError::WindowUnit { unit: unit.to_owned(), window: text.to_owned() })
        }
        Err(_) => Err(unparseable()),
    }
}
