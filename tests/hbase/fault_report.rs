//! The table of faults: operations acknowledged and lost under each fault, waits and recovery times.

use std::{fmt::Write, time::Duration};

use tsd_testkit::hbase_workload::WorkloadCounts;

/// A line: the effect of one fault on one workload.
#[derive(Clone, Debug)]
pub(crate) struct FaultLine {
    /// Name of the fault.
    pub(crate) fault: String,
    /// Name of the workload.
    pub(crate) workload: String,
    /// Counts before the fault.
    pub(crate) before: WorkloadCounts,
    /// Counts after the recovery.
    pub(crate) after: WorkloadCounts,
    /// Acknowledged operations that were missing after the recovery.
    pub(crate) lost: u64,
    /// Longest wait for an acknowledgement.
    pub(crate) longest_wait: Duration,
    /// Time from the fault until all regions took writes and reads.
    pub(crate) recovery: Duration,
}

impl FaultLine {
    /// True if nothing was lost and no read was wrong.
    pub(crate) const fn is_correct(&self) -> bool {
        self.lost == 0 && self.after.wrong_reads == self.before.wrong_reads
    }

    fn cells(&self) -> [String; 9] {
        let (before, after) = (&self.before, &self.after);
        [
            self.fault.clone(),
            self.workload.clone(),
            (after.acknowledged - before.acknowledged).to_string(),
            self.lost.to_string(),
            (after.reads - before.reads).to_string(),
            (after.wrong_reads - before.wrong_reads).to_string(),
            format!(
                "{} / {}",
                after.failed_writes - before.failed_writes,
                after.failed_reads - before.failed_reads
            ),
            seconds(self.longest_wait),
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
pub(crate) fn render(lines: &[FaultLine]) -> String {
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
