//! Visits all states that can be reached, breadth first.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::world::World;

/// Bound of the states, so that a mistake in the limits ends.
const MAX_STATES: usize = 3_000_000;

/// What a search has found.
pub(super) enum Found {
    /// All states are as they must be.
    Nothing { states: usize },
    /// The first state that is not, and how it is reached.
    Violation { what: String, steps: Vec<String> },
}

/// Visits all states from the first one on.
pub(super) fn search(first: World) -> Found {
    // Of a state that was visited, its hash: the state before, and which of its steps led here.
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

/// The names of the steps from the first state to one that was visited.
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
