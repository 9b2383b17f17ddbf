//! Checks a damaged file: named errors, intact reads, and the data after an accepted loss.

use std::{ops::RangeInclusive, sync::atomic::Ordering::SeqCst};

use tsd_testkit::http;

use crate::{
    load::HOUR_MS,
    model::SeriesModel,
    run::{ReadError, read_series},
    stages::{Conductor, FILES},
};

impl Conductor<'_> {
    pub(crate) fn flip(&mut self, kill: bool) -> String {
        let Some(flipped) = self.environment.flip(&mut self.random) else {
            return "(no file yet)".into();
        };
        let (file, at) = (flipped.file(), flipped.at);
        self.run.damaged.lock().push(file.clone());
        if kill {
            self.kill();
            self.start_daemon(FILES);
        }
        // Reads every point, so that a read finds the damage.
        self.read_everything();
        self.run.sleep(self.load);
        let lost = match self.account_for_damage() {
            Some(lost) => lost,
            // The block was in memory, the file was replaced, or a merge replaced its section;
            // every point was read and compared.
            None => "no read needed the byte".into(),
        };
        format!("({file}byte {at}{}; {lost})", if kill { ", killed" } else { "" })
    }

    /// Names of the losses that were not accepted.
    fn losses(&self) -> Vec<String> {
        let list = http(self.address(), "GET", "/api/quarantine", None);
        let files: serde_json::Value = serde_json::from_str(&list.body).unwrap_or_default();
        let names = files.as_array().into_iter().flatten();
        names.filter_map(|file| Some(file["name"].as_str()?.to_owned())).collect()
    }

    /// Reads all points; damage may show.
    fn read_everything(&self) {
        for series in self.run.all_series() {
            if let Some(span) = series.span()
                && let Err(ReadError::Refused(_, text)) =
                    read_series(self.address(), &series, &span)
            {
                self.require(self.run.names_damage(&text), || {
                    format!("{} on a damaged store: {text}", series.metric)
                });
            }
        }
    }

    /// Checks that exactly the hours of a damaged file fail, accepts their loss, and removes it from
    /// the model. `None` without damage.
    pub(crate) fn account_for_damage(&mut self) -> Option<String> {
        let run = self.run;
        let status = self.status();
        let losses = self.losses();
        if status.is_ok() && losses.is_empty() {
            return None;
        }
        self.wait_for_status("of damage", |status| {
            let damaged = status.problems.iter().find(|problem| problem["part"] == "data");
            damaged.is_none_or(|problem| {
                status.ready
                    && status.word == if problem["impact"] == "degraded" { "ok" } else { "partial" }
                    && run.names_damage(problem["reason"].as_str().unwrap_or_default())
            })
        });
        let _pause = run.pause.write();
        let mut failing = Vec::new();
        let mut checked = 0;
        for series in run.all_series() {
            let Some(span) = series.span_ever() else { continue };
            let mut hour = span.start().div_euclid(HOUR_MS) * HOUR_MS;
            if self.check_series(&series, span.clone(), &mut checked) {
                continue;
            }
            while hour <= *span.end() {
                let range = hour..=hour + HOUR_MS - 1;
                if !self.check_series(&series, range.clone(), &mut checked) {
                    failing.push((series.clone(), range));
                }
                hour += HOUR_MS;
            }
        }
        let notes = self.check_annotations();
        let accepted = serde_json::json!({ "files": self.losses() }).to_string();
        let response = http(self.address(), "POST", "/api/quarantine/accept", Some(&accepted));
        self.require(response.status == 200, || format!("a loss is not accepted: {response:?}"));
        self.wait_until_ok();
        let hours = failing.len();
        let mut lost = 0;
        for (series, range) in failing {
            match read_series(self.address(), &series, &range) {
                Ok(found) => lost += series.replace(range, &found),
                Err(error) => run.fail(format!("after the loss was accepted: {error}")),
            }
        }
        run.figures.lost_to_damage.fetch_add(lost, SeqCst);
        Some(format!("{hours} hours named, {lost} points and {notes} annotations lost"))
    }

    /// Compares a range of a series; false if it needs a damaged file.
    fn check_series(
        &self,
        series: &SeriesModel,
        range: RangeInclusive<i64>,
        checked: &mut u64,
    ) -> bool {
        let expected = series.expect(range);
        match read_series(self.address(), series, &expected.range) {
            Ok(found) => match series.check(&expected, &found) {
                Ok(points) => *checked += points,
                Err(wrong) => self.run.fail(wrong),
            },
            Err(error) => {
                series.abandon(&expected);
                match error {
                    ReadError::Refused(_, text) if self.run.names_damage(&text) => {
                        self.run.figures.named_errors.fetch_add(1, SeqCst);
                        return false;
                    }
                    error => {
                        self.run.fail(format!("read of {}: {error}", series.metric));
                    }
                }
            }
        }
        true
    }

    /// Compares a sample of the annotations; returns how many were lost to damage.
    fn check_annotations(&self) -> usize {
        let mut notes = self.run.annotations.lock();
        let mut lost = Vec::new();
        for (second, text) in notes.iter().rev().take(300) {
            let uri = format!("/api/annotation?start_time={second}");
            let read = http(self.address(), "GET", &uri, None);
            if self.run.names_damage(&read.body) {
                lost.push(*second);
            } else {
                self.require(read.body.contains(text.as_str()), || {
                    format!("annotation {second}: {read:?}")
                });
            }
        }
        for second in &lost {
            notes.remove(second);
        }
        lost.len()
    }

    /// Reads every point of the model; returns the number of acknowledged points. With `settle`,
    /// nothing is written meanwhile, and no write is in doubt afterwards.
    pub(crate) fn verify(&mut self, settle: bool) -> u64 {
        let run = self.run;
        let mut checked = 0;
        let pause = settle.then(|| run.pause.write());
        for series in run.all_series() {
            if !run.failures().is_empty() {
                break;
            }
            let Some(span) = series.span() else { continue };
            if !self.check_series(&series, span.clone(), &mut checked) {
                // Damage that no read has found before.
                drop(pause);
                // While a full disk holds senders, the model would never settle.
                let is_full = run.disk_is_full.load(SeqCst);
                if is_full {
                    self.environment.unfill();
                }
                let lost = self.account_for_damage().unwrap_or_default();
                if is_full {
                    self.environment.fill();
                }
                println!("  damage found late: {lost}");
                return checked;
            }
            if settle && let Ok(found) = read_series(self.address(), &series, &span) {
                series.replace(span, &found);
            }
        }
        run.figures.verified.fetch_add(checked, SeqCst);
        self.check_annotations();
        checked
    }
}
