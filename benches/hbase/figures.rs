//! What is printed: rows of Markdown, medians of rounds.

/// One round of one rival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Cells, points or gets a second.
    pub(crate) rate: f64,
    /// Processor time for a million, of the client.
    pub(crate) client: f64,
    /// Of all region servers.
    pub(crate) server: f64,
}

impl Round {
    /// From what so many took in all.
    pub(crate) fn of(number: u64, seconds: f64, client: f64, server: f64) -> Self {
        let millions = number as f64 / 1e6;
        Self { rate: number as f64 / seconds, client: client / millions, server: server / millions }
    }
}

/// Median of what the rounds say.
pub(crate) fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    middle(rounds.iter().map(of).collect())
}

/// Median of the ratios of rounds that followed each other.
pub(crate) fn ratio(ours: &[Round], theirs: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    middle(ours.iter().zip(theirs).map(|(ours, theirs)| of(ours) / of(theirs)).collect())
}

fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => numbers[half],
        _ => f64::midpoint(numbers[half - 1], numbers[half]),
    }
}

/// A percentile of times, which are sorted for it.
pub(crate) fn percentile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() as f64 * part) as usize).min(times.len() - 1)]
}

/// Prints the head of a table.
pub(crate) fn head(columns: &[&str]) {
    println!("\n| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
}

/// Prints a row of it.
pub(crate) fn row(fields: &[String]) {
    println!("| {} |", fields.join(" | "));
}

/// A number with its thousands apart.
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
