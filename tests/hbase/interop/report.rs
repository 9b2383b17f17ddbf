//! Comparisons and differences of a part of the test.

use std::{fmt::Display, time::Duration};

/// Most printed differences of a part.
const SHOWN: usize = 12;

/// The findings of one part.
#[derive(Debug, Default)]
pub(crate) struct PartReport {
    /// Cells that were compared.
    pub(crate) cells: u64,
    /// Responses, or points of responses, that were compared.
    pub(crate) answers: u64,
    /// Figures other than differences.
    notes: Vec<String>,
    differences: Vec<String>,
}

impl PartReport {
    /// Adds a figure to the report.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        println!("interop:   {note}");
        self.notes.push(note);
    }

    /// Adds a difference, which fails the run.
    pub(crate) fn difference(&mut self, difference: impl Display) {
        let difference = difference.to_string();
        if self.differences.len() < SHOWN {
            println!("interop:   DIFFERENCE {difference}");
        }
        self.differences.push(difference);
    }

    /// Adds all differences between two lists of lines.
    pub(crate) fn compare_lines(&mut self, what: &str, theirs: &[String], ours: &[String]) {
        for (name, some, others) in [("only OpenTSDB", theirs, ours), ("only ours", ours, theirs)] {
            for line in some.iter().filter(|line| others.binary_search(line).is_err()) {
                self.difference(format!("{what}: {name}: {line}"));
            }
        }
        if theirs.len() != ours.len() && self.differences.is_empty() {
            self.difference(format!("{what}: {} and {} lines", theirs.len(), ours.len()));
        }
    }

    pub(crate) fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// The reports of all parts in their order.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<(String, PartReport, Duration)>);

impl Report {
    pub(crate) fn add(&mut self, name: String, part: PartReport, time: Duration) {
        self.0.push((name, part, time));
    }

    /// Prints the report; true if there is no difference.
    pub(crate) fn print(&self) -> bool {
        println!("\n| part | cells | answers | differences | s |\n|---|---|---|---|---|");
        for (name, part, time) in &self.0 {
            let (cells, answers, differences) = (part.cells, part.answers, part.differences.len());
            println!(
                "| {name} | {cells} | {answers} | {differences} | {:.0} |",
                time.as_secs_f64()
            );
        }
        for (name, part, _) in &self.0 {
            for note in &part.notes {
                println!("{name}: {note}");
            }
        }
        for (name, part, _) in &self.0 {
            for difference in part.differences.iter().take(SHOWN) {
                println!("{name}: DIFFERENCE {difference}");
            }
        }
        self.0.iter().all(|(_, part, _)| part.is_equal())
    }
}
