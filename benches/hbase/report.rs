//! Measurements of rounds, their medians, and Markdown tables.

/// One round of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    /// Cells, points or gets a second.
    pub(crate) rate: f64,
    /// CPU seconds of the client per million.
    pub(crate) client_cpu: f64,
    /// CPU seconds of all region servers per million.
    pub(crate) server_cpu: f64,
}

impl Measurement {
    /// Of `number` operations; times are in seconds for all of them.
    pub(crate) fn new(number: u64, seconds: f64, client_cpu: f64, server_cpu: f64) -> Self {
        let millions = number as f64 / 1e6;
        Self {
            rate: number as f64 / seconds,
            client_cpu: client_cpu / millions,
            server_cpu: server_cpu / millions,
        }
    }
}

/// Median of a value over rounds.
pub(crate) fn median(rounds: &[Measurement], of: impl Fn(&Measurement) -> f64) -> f64 {
    median_of(rounds.iter().map(of).collect())
}

/// Median of the ratios of successive rounds.
pub(crate) fn ratio(
    ours: &[Measurement],
    theirs: &[Measurement],
    of: impl Fn(&Measurement) -> f64,
) -> f64 {
    median_of(ours.iter().zip(theirs).map(|(ours, theirs)| of(ours) / of(theirs)).collect())
}

/// Median of numbers.
pub(crate) fn median_of(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => numbers[half],
        _ => f64::midpoint(numbers[half - 1], numbers[half]),
    }
}

/// A quantile of times; sorts them.
pub(crate) fn percentile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() as f64 * part) as usize).min(times.len() - 1)]
}

/// Prints the head of a table.
pub(crate) fn print_head(columns: &[&str]) {
    println!("\n| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
}

/// Prints a row of a table.
pub(crate) fn print_row(fields: &[String]) {
    println!("| {} |", fields.join(" | "));
}

/// A number with spaces between thousands.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}
