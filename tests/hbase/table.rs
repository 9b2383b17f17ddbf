//! The fault table: what was done, what was acknowledged and lost, how long it took.

use std::{fmt::Write, time::Duration};

use crate::workload::meter::Counts;

/// A line: one fault as one workload met it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// What was done.
    pub(crate) fault: String,
    /// What was written through.
    pub(crate) load: String,
    /// Counts before.
    pub(crate) before: Counts,
    /// Counts when all was well again.
    pub(crate) after: Counts,
    /// Acknowledged, and not found when everything was read.
    pub(crate) lost: u64,
    /// Longest wait for an acknowledgement.
    pub(crate) longest: Duration,
    /// From the fault until all regions took writes and reads. Then everything was read.
    pub(crate) recovery: Duration,
}

impl Line {
    /// Whether nothing is wrong.
    pub(crate) const fn is_good(&self) -> bool {
        self.lost == 0 && self.after.bad_scans == self.before.bad_scans
    }

    fn cells(&self) -> [String; 9] {
        let (before, after) = (&self.before, &self.after);
        [
            self.fault.clone(),
            self.load.clone(),
            (after.acknowledged - before.acknowledged).to_string(),
            self.lost.to_string(),
            (after.scans - before.scans).to_string(),
            (after.bad_scans - before.bad_scans).to_string(),
            format!(
                "{} / {}",
                after.refused - before.refused,
                after.failed_scans - before.failed_scans
            ),
            seconds(self.longest),
            seconds(self.recovery),
        ]
    }
}

const HEAD: [&str; 9] = [
    "fault",
    "through",
    "acknowledged",
    "lost",
    "reads checked",
    "wrong",
    "errors of writes / reads",
    "longest wait, s",
    "recovery, s",
];

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// The table in Markdown.
pub(crate) fn render(lines: &[Line]) -> String {
    let mut text = String::new();
    row(&mut text, &HEAD.map(str::to_owned));
    row(&mut text, &HEAD.map(|_| "---".to_owned()));
    for line in lines {
        row(&mut text, &line.cells());
    }
    text
}

fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
