//! Visits all reachable states, breadth first.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::world::World;

/// Maximum number of states, so that the search ends despite a mistake in the limits.
const MAX_STATES: usize = 3_000_000;

/// Result of a search.
pub(super) enum Found {
    /// No violation in all reachable states.
    Nothing { states: usize },
    /// The first violation, and the steps to its state.
    Violation { what: String, steps: Vec<String> },
}

/// Visits all states that are reachable from `first`.
pub(super) fn search(first: World) -> Found {
    // By the hash of a visited state: the hash of the state before, and the index of the step from
    // it.
    let mut visited: HashMap<u64, (u64, u32)> = HashMap::new();
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
fn path(visited: &HashMap<u64, (u64, u32)>, first: World, mut id: u64) -> Vec<String> {
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
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
