//! Visits all states that can be reached, breadth first.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::world::World;

/// Bound of the states, so that a mistake in the limits ends.
const MAX_STATES: usize = 20_000_000;

/// What a search has found.
pub(super) enum Found {
    /// All states are as they must be.
    Nothing { states: usize },
    /// The first state that is not, and how it is reached.
    Violation { what: String, steps: Vec<String> },
}

/// Visits all states from the first one on.
pub(super) fn search(first: World) -> Found {
    // Of a state that was visited, its hash: the state before, and the step from there.
    let mut visited: HashMap<u64, (u64, String)> = HashMap::new();
    let mut queue = VecDeque::from([(hash(&first), first)]);
    while let Some((id, world)) = queue.pop_front() {
        for (step, next) in world.steps() {
            let next_id = hash(&next);
            if visited.contains_key(&next_id) {
                continue;
            }
            visited.insert(next_id, (id, step));
            assert!(visited.len() < MAX_STATES, "too many states");
            if let Some(what) = next.violation() {
                return Found::Violation { what, steps: path(&visited, next_id) };
            }
            queue.push_back((next_id, next));
        }
    }
    Found::Nothing { states: visited.len() }
}

fn path(visited: &HashMap<u64, (u64, String)>, mut id: u64) -> Vec<String> {
    let mut steps = Vec::new();
    while let Some((before, step)) = visited.get(&id) {
        steps.push(step.clone());
        id = *before;
        if steps.len() > visited.len() {
            break;
        }
    }
    steps.reverse();
    steps
}

fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
