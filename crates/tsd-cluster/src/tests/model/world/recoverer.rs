//! Steps of a node that recovers the log of the owner.

use super::{OWNER, Recoverer, Steps, World, name};
use crate::{Manifest, ManifestPhase, RecordMerge, Recovery, TableReply, TableRequest};

impl World {
    pub(super) fn recoverer_steps(&self, steps: &mut Steps) {
        if self.next_recoverer < OWNER + 1 + self.limits.recoverers && !self.is_recovered {
            let mut next = self.clone();
            let by = self.next_recoverer;
            next.next_recoverer += 1;
            next.recoverer = Some(Recoverer {
                recovery: Recovery::new(OWNER, by).taking_over(by - 1),
                replayed: Vec::new(),
                is_prepared: false,
                seen: None,
            });
            steps.push((format!("recoverer {by} begins"), next));
        }
        let Some(recoverer) = &self.recoverer else { return };
        if recoverer.recovery.is_read() {
            let mut next = self.clone();
            next.flush(&recoverer.replayed);
            if let Some(recoverer) = &mut next.recoverer {
                recoverer.recovery.flushed();
            }
            steps.push((format!("recoverer flushes {:?}", recoverer.replayed), next));
        } else if let Some(request) = recoverer.recovery.request()
            && !self.must_await_lease(recoverer, &request)
        {
            for (how, mut next, reply) in self.sent(&request) {
                next.take_recoverer_reply(reply);
                steps.push((format!("recoverer: {}{how}", name(&request)), next));
            }
        }
    }

    /// True while the owner may have a lease, and the request retires its log.
    fn must_await_lease(&self, recoverer: &Recoverer, request: &TableRequest) -> bool {
        let retires = |of: &Manifest| of.phase == ManifestPhase::Retired;
        self.limits.times > 0
            && !self.faults.skips_wait
            && recoverer.seen.is_some_and(|seen| self.time <= seen)
            && matches!(request, TableRequest::SwapManifest { new, .. } if retires(new))
    }

    fn take_recoverer_reply(&mut self, reply: TableReply) {
        let faults = self.faults;
        let now = self.time;
        let Some(recoverer) = &mut self.recoverer else { return };
        recoverer.seen = recoverer.seen.or(Some(now));
        if let Err(error) = recoverer.recovery.reply(reply) {
            // A newer recoverer may have taken the log, which is no violation. A hole is a
            // violation.
            if matches!(error, crate::RecoveryError::Hole { .. }) {
                self.problem = Some(error.to_string());
            }
            self.recoverer = None;
            return;
        }
        let recovery = &mut recoverer.recovery;
        if recovery.manifest().is_some() && !recoverer.is_prepared {
            recoverer.is_prepared = true;
            for merge in recovery.merges_mut() {
                if faults.ignores_watermark {
                    *merge = RecordMerge::new(1);
                }
                merge.keeps_duplicates = faults.keeps_duplicates;
            }
        }
        let streams = recovery.manifest().map(|manifest| manifest.streams.clone());
        let watermark = streams.and_then(|streams| Some(streams.first()?.watermark));
        for (_, record) in recovery.take_records() {
            if watermark.is_some_and(|watermark| record.sequence < watermark) {
                let sequence = record.sequence;
                self.problem =
                    Some(format!("record {sequence} is replayed although it is trimmed"));
            }
            recoverer.replayed.push(record.sequence);
        }
        if recovery.is_read() && self.recovered.is_none() {
            let replayed = recoverer.replayed.iter().copied();
            let flushed = self.points.flushed.iter().copied();
            self.recovered = Some(replayed.chain(flushed).collect());
        }
        self.is_recovered |= recovery.is_done();
    }
}
