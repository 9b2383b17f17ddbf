//! Visits all reachable states, breadth first.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hash, Hasher},
};

use super::world::World;
use crate::slot::{finish, mix};

/// Maximum number of states, so that the search ends despite a mistake in the limits.
const MAX_STATES: usize = 3_000_000;

/// Hashes states. The hasher of the standard library takes half of the time of a search.
#[derive(Default)]
struct StateHasher(u64);

impl Hasher for StateHasher {
    fn finish(&self) -> u64 {
        finish(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // One more, so that leading zeros count.
        self.0 = mix(self.0.wrapping_add(1), number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// By the hash of a visited state: the hash of the state before, and the index of the step from it.
type VisitedStates = HashMap<u64, (u64, u32), BuildHasherDefault<StateHasher>>;

/// Result of a search.
pub(super) enum Found {
    /// No violation in all reachable states.
    Nothing { states: usize },
    /// The first violation, and the steps to its state.
    Violation { what: String, steps: Vec<String> },
}

/// Visits all states that are reachable from `first`.
pub(super) fn search(first: World) -> Found {
    let mut visited = VisitedStates::default();
    let start = first.clone();
    let mut queue = VecDeque::from([(hash(&first), first)]);
    while let Some((id, world)) = queue.pop_front() {
        for (step, (_, next)) in (0..).zip(world.steps()) {
            let next_id = hash(&next);
            if visited.contains_key(&next_id) {
                continue;
            }
            visited.insert(next_id, (id, step));
            assert!(visited.len() < MAX_STATES, "too many states");
            if let Some(what) = next.violation() {
                return Found::Violation { what, steps: path(&visited, start, next_id) };
            }
            queue.push_back((next_id, next));
        }
    }
    Found::Nothing { states: visited.len() }
}

/// Returns the names of the steps from the first state to a visited one.
fn path(visited: &VisitedStates, first: World, mut id: u64) -> Vec<String> {
    let mut numbers = Vec::new();
    while let Some((before, step)) = visited.get(&id).filter(|_| id != hash(&first)) {
        numbers.push(*step as usize);
        id = *before;
    }
    let mut world = first;
    let mut steps = Vec::new();
    for number in numbers.into_iter().rev() {
        let Some((name, next)) = world.steps().into_iter().nth(number) else { break };
        steps.push(name);
        world = next;
    }
    steps
}

fn hash(world: &World) -> u64 {
    let mut hasher = StateHasher::default();
    world.hash(&mut hasher);
    hasher.finish()
}
