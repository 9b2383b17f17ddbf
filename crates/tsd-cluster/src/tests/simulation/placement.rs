//! The slot rule: nodes take it from the settings row, where the first one has stored the UIDs of the slot tags.
//!
//! A rename during the run gives the name of the slot tag to another tag key, so a node that resolves the name at its
//! start gets another rule than the nodes that started before.

use super::{PlantedFault, events::SimTime, world::World};
use crate::{
    slot::Slot,
    slot_rule::{KeyWidths, SlotRule},
};

const WIDTHS: KeyWidths = KeyWidths { salt: 0, metric: 1, tagk: 1, tagv: 8 };
/// UIDs of the tag key that has the name of the slot tag, before and after the rename.
const NAMED: [u8; 2] = [1, 2];
const RENAMED_AT: SimTime = 10_000;

/// The row key of a series, which has both tag keys.
fn row_key(key: usize) -> Vec<u8> {
    let [one, other] = [key as u64, !key as u64].map(u64::to_be_bytes);
    [&[7; 5][..], &NAMED[..1], &one, &NAMED[1..], &other].concat()
}

fn rule_of(uids: &str) -> SlotRule {
    SlotRule::parse(WIDTHS, uids).unwrap_or_else(|| panic!("{uids} is no rule"))
}

impl World {
    /// Gives a node that starts the rule of the settings row. The first one stores it.
    pub(super) fn take_rule(&mut self, node: usize) {
        let named = NAMED[usize::from(self.now >= RENAMED_AT)];
        let resolved = rule_of(&format!("{named:02x}"));
        let stored = self.slot_rule.get_or_insert_with(|| resolved.clone());
        let rule = if self.config.fault == Some(PlantedFault::RuleByName) {
            resolved
        } else {
            rule_of(&stored.uid_text())
        };
        self.nodes[node].rule = Some(rule);
    }

    /// The slot of a series by the rule of a node.
    pub(super) fn slot_on(&self, node: usize, key: usize) -> Slot {
        slot_by(self.nodes[node].rule.as_ref(), key)
    }

    /// The slot of a series by the settings row.
    pub(super) fn slot_of(&self, key: usize) -> Slot {
        slot_by(self.slot_rule.as_ref(), key)
    }
}

fn slot_by(rule: Option<&SlotRule>, key: usize) -> Slot {
    rule.map_or_else(|| panic!("no node has started"), |rule| rule.slot_of(&row_key(key)))
}
