//! Simulates nodes that move slots, with the real state machines. Faults are kills, pauses, joins, drains, slow and
//! lost messages, and different clocks. Clients correct the same points all the time.
//!
//! One queue of events, ordered by time, and one generator of numbers make runs repeatable: the same seed gives the
//! same trace. HBase is a table with logs and stored cells that answers in time, late or never. The invariants are
//! checked at every commit, and once a second ([`world`]). Each test that removes a safeguard must find a violation.

#![expect(clippy::indexing_slicing, reason = "tests")]

mod events;
mod links;
mod looks;
mod placement;
mod reads;
mod steps;
mod traffic;
mod world;
mod writes;

use self::{
    events::SimulationRng,
    links::Topology,
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
    /// Nodes join without asking others whether they reach each other.
    AdmissionAsksNobody,
    /// No node has to leave because of broken connections.
    NoRemoval,
    /// Each node removes those that it does not reach.
    TwoDeciders,
    /// A node that stood still executes what has waited in its sockets.
    InputIsKept,
    /// A forwarded write is made whenever it arrives.
    VoidIsAccepted,
    /// A forwarded write without a response is sent again.
    FrameSentAgain,
    /// A taken log is retired although its former owner may have a lease.
    LeaseNotAwaited,
    /// Appends extend the lease.
    LeaseByAppend,
    /// An owner proves itself, then takes the view of its rows.
    ProofBeforeView,
    /// A read asks nobody for the slots of an owner whose rows are stored.
    StoredIsBelieved,
    /// Each node resolves the names of the slot tags itself.
    RuleByName,
    /// Slots are planned by the members in the digest, without a look at the manifests.
    PlanByDigest,
    /// No node publishes the digest after the first one.
    NoTakeover,
    /// A publication replaces any other one.
    BlindPublication,
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
        topology: Topology::Whole,
        bad_address: None,
        fault: None,
        reads: false,
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

/// Without faults and with a constant number of clients for each node.
#[test]
fn writes_are_forwarded_and_slots_do_not_move() {
    for nodes in [3, 6, 100] {
        let config =
            SimulationConfig { nodes, keys: 3 * nodes, seconds: 20, is_calm: true, ..small(1) };
        let result = run(&config);
        assert_eq!(result.violation, None);
        let SimulationCost { swaps, commits, forwarded, .. } = result.cost;
        assert!(swaps < 20 * nodes as u64, "{swaps} changes of the assignment, {nodes} nodes");
        assert!(2 * forwarded > commits, "{forwarded} of {commits}");
    }
}

/// Connections break, and nothing else.
fn cuts(seed: u64) -> SimulationConfig {
    let nodes = 2 + (seed % 5) as usize;
    SimulationConfig { nodes, seconds: 300, is_calm: true, topology: Topology::Cuts, ..small(seed) }
}

#[test]
fn clients_of_the_other_nodes_go_on_when_connections_break() {
    let mut removals = 0;
    for seed in 0..30 {
        let result = run(&cuts(seed));
        assert_eq!(result.violation, None, "seed {seed}");
        assert!(result.acknowledged > 1_000, "seed {seed}: {result:?}");
        removals += result.removals;
    }
    assert!(removals > 50, "{removals} removals");
}

#[test]
fn what_must_hold_holds_when_connections_break_and_nodes_die() {
    for seed in 0..20 {
        let topology = if seed % 2 == 0 { Topology::Cuts } else { Topology::Flapping };
        let config = SimulationConfig { topology, seconds: 120, ..small(seed) };
        let result = run(&config);
        assert_eq!(result.violation, None, "seed {seed}");
        assert!(result.acknowledged > 1_000, "seed {seed}: {result:?}");
    }
}

#[test]
fn a_connection_that_flaps_is_no_cycle_of_removals() {
    for seed in 0..5 {
        let seconds = 1_200;
        let config = SimulationConfig { topology: Topology::Flapping, seconds, ..cuts(seed) };
        let result = run(&config);
        assert_eq!(result.violation, None, "seed {seed}");
        // 10 s, 20 s, 40 s, … between them.
        assert!((1..=8).contains(&result.removals), "seed {seed}: {result:?}");
    }
}

#[test]
fn a_node_with_a_bad_address_is_refused_whenever_it_starts() {
    for seed in 0..30 {
        let (nodes, bad) = (3 + (seed % 3) as usize, (seed % 3) as usize);
        let config = SimulationConfig {
            nodes,
            seconds: 60,
            topology: Topology::Watched,
            bad_address: Some(bad),
            ..cuts(seed)
        };
        let result = run(&config);
        assert_eq!(result.violation, None, "seed {seed}");
        assert_eq!(result.serving, nodes - 1, "seed {seed}: {result:?}");
        assert!(result.acknowledged > 1_000, "seed {seed}: {result:?}");
    }
}

fn is_found(fault: PlantedFault) {
    is_found_in(fault, small);
}

fn is_found_in(fault: PlantedFault, config: impl Fn(u64) -> SimulationConfig) {
    let violation = (0..200).find_map(|seed| {
        let config = SimulationConfig { fault: Some(fault), ..config(seed) };
        run(&config).violation
    });
    assert!(violation.is_some(), "{fault:?} is not found");
}

/// Checks that a fault makes a read stale.
fn is_stale(fault: PlantedFault) {
    let violation = (0..200).find_map(|seed| {
        let config = SimulationConfig { fault: Some(fault), ..with_reads(seed) };
        run(&config).violation.filter(|text| text.contains("a read by"))
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

#[test]
fn a_slot_rule_that_two_nodes_resolve_differently_is_found() {
    is_found(PlantedFault::RuleByName);
}

#[test]
fn an_admission_that_asks_nobody_is_found() {
    is_found_in(PlantedFault::AdmissionAsksNobody, |seed| SimulationConfig {
        nodes: 3,
        seconds: 120,
        topology: Topology::Watched,
        bad_address: Some((seed % 3) as usize),
        ..cuts(seed)
    });
}

#[test]
fn a_broken_connection_without_a_removal_is_found() {
    is_found_in(PlantedFault::NoRemoval, cuts);
}

#[test]
fn two_deciders_are_found() {
    is_found_in(PlantedFault::TwoDeciders, cuts);
}

/// Nodes are paused and killed; connections are watched.
fn watched(seed: u64) -> SimulationConfig {
    SimulationConfig { topology: Topology::Watched, seconds: 120, ..small(seed) }
}

#[test]
fn input_that_is_kept_over_a_standstill_is_found() {
    is_found_in(PlantedFault::InputIsKept, watched);
}

#[test]
fn a_forward_that_is_made_after_its_time_is_found() {
    is_found_in(PlantedFault::VoidIsAccepted, watched);
}

#[test]
fn a_forward_that_is_sent_again_is_found() {
    is_found_in(PlantedFault::FrameSentAgain, watched);
}

/// Clients read, and heartbeats fail while appends succeed.
fn with_reads(seed: u64) -> SimulationConfig {
    let topology = if seed.is_multiple_of(2) { Topology::Whole } else { Topology::Watched };
    SimulationConfig { reads: true, topology, ..small(seed) }
}

#[test]
fn reads_see_what_was_acknowledged_or_read_before() {
    for seed in 0..20 {
        let result = run(&with_reads(seed));
        assert_eq!(result.violation, None, "seed {seed}");
        assert!(result.acknowledged > 300 && result.reads > 500, "seed {seed}: {result:?}");
    }
}

#[test]
fn reads_are_not_stale_when_connections_break() {
    for seed in 0..10 {
        let config = SimulationConfig { topology: Topology::Cuts, ..with_reads(seed) };
        let result = run(&config);
        assert_eq!(result.violation, None, "seed {seed}");
        assert!(result.acknowledged > 300 && result.reads > 500, "seed {seed}: {result:?}");
    }
}

#[test]
fn a_lease_that_is_not_awaited_is_found() {
    is_stale(PlantedFault::LeaseNotAwaited);
}

#[test]
fn a_lease_that_appends_extend_is_found() {
    is_stale(PlantedFault::LeaseByAppend);
}

#[test]
fn a_proof_before_the_view_is_found() {
    is_stale(PlantedFault::ProofBeforeView);
}

#[test]
fn a_read_that_believes_that_all_is_stored_is_found() {
    is_stale(PlantedFault::StoredIsBelieved);
}
