//! Simulates nodes that move slots, with the real state machines. Faults are kills, pauses, joins, drains, slow and
//! lost messages, and different clocks. Clients correct the same points all the time.
//!
//! One queue of events, ordered by time, and one generator of numbers make runs repeatable: the same seed gives the
//! same trace. HBase is a table with logs and stored cells that answers in time, late or never. The invariants are
//! checked at every commit, and once a second ([`world`]). Each test that removes a safeguard must find a violation.

#![expect(clippy::indexing_slicing, reason = "tests")]

mod events;
mod steps;
mod world;

use self::{
    events::SimulationRng,
    world::{RunResult, SimulationConfig, SimulationCost, World},
};

/// A safeguard that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlantedFault {
    /// A fenced node acknowledges.
    NoFenceCheck,
    /// New owners commit by their own clocks.
    NoCommitFloor,
    /// Slots are given away while their rows are still held.
    ReleaseWithoutFlush,
    /// Forwarded writes of slots that were given away are accepted.
    StaleForward,
}

fn run(config: &SimulationConfig) -> RunResult {
    World::new(config.clone(), SimulationRng::new(config.seed)).run()
}

fn small(seed: u64) -> SimulationConfig {
    SimulationConfig {
        seed,
        nodes: 3 + (seed % 6) as usize,
        keys: 30,
        seconds: 60,
        is_calm: false,
        fault: None,
    }
}

#[test]
fn what_must_hold_holds_with_any_seed() {
    let mut moves = 0;
    for seed in 0..30 {
        let result = run(&small(seed));
        assert_eq!(result.violation, None, "seed {seed}");
        assert!(result.acknowledged > 1_000, "seed {seed}: {result:?}");
        moves += result.generation;
    }
    assert!(moves > 300, "{moves} changes of the assignment");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let traces = [7, 7, 8].map(|seed| run(&small(seed)).trace);
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], traces[2]);
}

#[test]
fn a_thousand_nodes_keep_what_must_hold() {
    let config = SimulationConfig { nodes: 1_000, keys: 300, seconds: 20, ..small(1) };
    let result = run(&config);
    assert_eq!(result.violation, None);
    assert!(result.acknowledged > 3_000, "{result:?}");
}

/// Prints the load of a node on the table and on other nodes, without faults and with a constant number of clients
/// for each node.
#[test]
fn the_table_is_asked_as_often_by_each_node_however_many_there_are() {
    for nodes in [3, 6, 100, 1_000] {
        let config =
            SimulationConfig { nodes, keys: 3 * nodes, seconds: 20, is_calm: true, ..small(1) };
        let result = run(&config);
        assert_eq!(result.violation, None);
        // Heartbeats continue after the last write.
        let SimulationCost { heartbeats, manifests_read, swaps, commits, forwarded } = result.cost;
        let ticks = heartbeats as f64;
        println!(
            "{nodes} nodes: {:.1} manifests read a look, {:.4} changes of the assignment a look, {:.2} of the writes forwarded",
            manifests_read as f64 / ticks,
            swaps as f64 / ticks,
            forwarded as f64 / commits as f64
        );
        let looks_a_node = ticks / nodes as f64;
        // Two heartbeats a second for twenty seconds and the quiet time.
        assert!(
            (100.0..150.0).contains(&looks_a_node),
            "{looks_a_node} looks of each of {nodes} nodes"
        );
        assert_eq!(manifests_read / heartbeats, nodes as u64, "of {nodes} nodes");
        assert!(forwarded as f64 > 0.5 * commits as f64, "{forwarded} of {commits}");
    }
}

fn is_found(fault: PlantedFault) {
    let violation = (0..40).find_map(|seed| {
        let config = SimulationConfig { fault: Some(fault), ..small(seed) };
        run(&config).violation
    });
    assert!(violation.is_some(), "{fault:?} is not found");
}

#[test]
fn a_fence_that_is_not_checked_is_found() {
    is_found(PlantedFault::NoFenceCheck);
}

#[test]
fn a_missing_commit_floor_is_found() {
    is_found(PlantedFault::NoCommitFloor);
}

#[test]
fn a_release_without_a_flush_is_found() {
    is_found(PlantedFault::ReleaseWithoutFlush);
}

#[test]
fn a_forward_by_a_stale_generation_is_found() {
    is_found(PlantedFault::StaleForward);
}
