use super::*;
use crate::digest::DigestBeat;

const TIMES: WatchTimes = WatchTimes {
    beat: Duration::from_secs(1),
    suspect_after: Duration::from_secs(5),
    hinted_after: Duration::from_secs(2),
    fresh_for: Duration::from_secs(2),
    broken_for: Duration::from_secs(3),
    leave_within: Duration::from_secs(3),
    ended_within: Duration::from_secs(30),
};

fn at(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn none() -> ClusterDigest {
    ClusterDigest::default()
}

/// A digest by node 1, in which some members have to leave.
fn removing<const N: usize>(members: [u64; N], removed: &[u64]) -> ClusterDigest {
    let member = |node: u64| {
        let is_removed = removed.contains(&node);
        (node, DigestMember { is_removed, name: format!("node-{node}"), ..DigestMember::default() })
    };
    ClusterDigest::default().next(1, members.into_iter().map(member).collect(), i64::MIN)
}

/// Looks once a second.
fn watch_over(
    watch: &mut MemberWatch,
    seconds: std::ops::RangeInclusive<u64>,
    digest: &ClusterDigest,
    found: impl Fn(u64) -> Vec<(u64, Manifest)>,
) {
    seconds.for_each(|second| watch.looked(at(second), digest.clone(), found(second)));
}

/// The log to recover, and its dead recoverer.
fn dead(watch: &MemberWatch) -> Option<(u64, Option<u64>)> {
    watch.recoverable(0, |_| false).map(|dead| (dead.incarnation, dead.recoverer))
}

/// The members that a publication tells to leave.
fn removals(watch: &MemberWatch) -> Option<Vec<u64>> {
    let members = watch.publication()?.members;
    Some(members.iter().filter(|(_, of)| of.is_removed).map(|(node, _)| *node).collect())
}

fn manifest(incarnation: u64, revision: u64) -> (u64, Manifest) {
    let node = format!("node-{}", incarnation % 2);
    let mut manifest = Manifest::first(incarnation, &node, 1).at_address("host:1");
    manifest.revision.number = revision;
    (incarnation, manifest)
}

fn recovering(incarnation: u64, by: u64) -> (u64, Manifest) {
    let (_, open) = manifest(incarnation, 9);
    let mut manifest = open.next(by);
    manifest.phase = ManifestPhase::Recovering;
    (incarnation, manifest)
}

fn states(watch: &MemberWatch) -> Vec<(u64, MemberState)> {
    watch.members().iter().map(|member| (member.incarnation, member.state)).collect()
}

#[test]
fn a_manifest_that_stands_still_is_that_of_a_dead_node() {
    let mut watch = MemberWatch::new(1, TIMES);
    watch_over(&mut watch, 0..=4, &none(), |_| vec![manifest(1, 1), manifest(2, 1)]);
    assert_eq!(dead(&watch), None);
    watch.looked(at(5), none(), vec![manifest(1, 1), manifest(2, 1)]);
    let expected = [(1, MemberState::Serving), (2, MemberState::Suspected)];
    assert_eq!(states(&watch), expected, "nobody suspects itself");
    let still = DeadLog { incarnation: 2, still: Some(1), recoverer: None };
    assert_eq!(watch.recoverable(0, |_| false), Some(still));
    watch.looked(at(6), none(), vec![manifest(1, 1), manifest(2, 2)]);
    assert_eq!(dead(&watch), None);
}

#[test]
fn a_manifest_that_nobody_has_watched_is_not_that_of_a_dead_node() {
    let mut watch = MemberWatch::new(1, TIMES);
    watch.looked(at(0), none(), vec![manifest(1, 1), manifest(2, 1)]);
    watch.looked(at(60), none(), vec![manifest(1, 1), manifest(2, 1)]);
    assert_eq!(dead(&watch), None);
}

#[test]
fn a_hint_makes_it_sooner_and_a_failed_look_later() {
    let mut watch = MemberWatch::new(1, TIMES);
    watch.looked(at(0), none(), vec![manifest(2, 1)]);
    watch.suspect(2);
    watch.suspect(3);
    watch.looked(at(1), none(), vec![manifest(2, 1)]);
    assert_eq!(dead(&watch), None);
    watch.failed(at(2));
    watch.looked(at(3), none(), vec![manifest(2, 1)]);
    assert_eq!(dead(&watch), None);
    watch.looked(at(4), none(), vec![manifest(2, 1)]);
    assert_eq!(dead(&watch), Some((2, None)));
}

#[test]
fn a_recovery_is_taken_over_from_a_recoverer_that_is_gone() {
    let mut watch = MemberWatch::new(1, TIMES);
    let found = |_| vec![manifest(1, 1), recovering(2, 3), manifest(3, 1)];
    watch_over(&mut watch, 0..=0, &none(), found);
    assert_eq!(dead(&watch), None);
    watch_over(&mut watch, 1..=6, &none(), found);
    assert_eq!(dead(&watch), Some((2, Some(3))));
    watch.looked(at(7), none(), vec![manifest(1, 1), recovering(2, 1)]);
    assert_eq!(dead(&watch), Some((2, None)), "its attempt has failed");
    assert_eq!(watch.recoverable(0, |other| other == 2), None);
}

#[test]
fn a_recovery_that_fails_does_not_delay_those_of_others() {
    let mut watch = MemberWatch::new(1, TIMES);
    let dead = || vec![manifest(2, 1), recovering(3, 1), manifest(4, 1), recovering(5, 6)];
    watch_over(&mut watch, 0..=6, &none(), |second| {
        [dead(), vec![manifest(1, second), manifest(6, second)]].concat()
    });
    let mut failed = 0;
    let mut tried = Vec::new();
    for _ in 0..4 {
        failed = watch.recoverable(failed, |_| false).unwrap_or_default().incarnation;
        tried.push(failed);
    }
    assert_eq!(tried, [2, 3, 4, 2], "each in turn");
    watch.looked(at(7), none(), vec![manifest(1, 3), recovering(3, 1)]);
    let only = watch.recoverable(3, |_| false).unwrap_or_default();
    assert_eq!(only.incarnation, 3, "there is no other");
}

#[test]
fn a_member_is_settled_when_its_log_is_retired_or_its_heartbeats_go_on() {
    let mut watch = MemberWatch::new(1, TIMES);
    watch.looked(at(0), none(), vec![manifest(2, 7)]);
    assert_eq!(watch.settlement(2, watch.revision(2)), None);
    watch.looked(at(1), none(), vec![manifest(2, 8)]);
    assert_eq!(watch.settlement(2, 7), Some(Settlement::Serves));
    watch.looked(at(2), none(), vec![recovering(2, 3)]);
    assert_eq!(watch.settlement(2, 7), None);
    watch.looked(at(3), none(), Vec::new());
    assert_eq!(watch.settlement(2, 7), Some(Settlement::Stored));
}

/// The manifest of a node that does not reach others.
fn cut<const N: usize>(incarnation: u64, revision: u64, unreached: [u64; N]) -> (u64, Manifest) {
    let (_, mut manifest) = manifest(incarnation, revision);
    manifest.unreached = unreached.into();
    (incarnation, manifest)
}

fn joining<const N: usize>(incarnation: u64, unreached: [u64; N]) -> (u64, Manifest) {
    let (_, mut manifest) = cut(incarnation, 1 + N as u64, unreached);
    manifest.phase = ManifestPhase::Joining;
    (incarnation, manifest)
}

#[test]
fn the_oldest_node_decides_when_a_link_stays_broken() {
    let look = |second: u64| vec![cut(1, second, []), cut(2, second, [3]), cut(3, second, [])];
    let (mut first, mut second) = (MemberWatch::new(1, TIMES), MemberWatch::new(2, TIMES));
    let mut digest = none();
    for second_of_look in 0..4 {
        first.looked(at(second_of_look), digest.clone(), look(second_of_look));
        second.looked(at(second_of_look), digest.clone(), look(second_of_look));
        if second_of_look > 0 {
            assert_eq!(second.publication(), None, "1 decides");
        }
        let expected: &[u64] = if second_of_look < 3 { &[] } else { &[3] };
        assert_eq!(removals(&first).as_deref(), Some(expected), "{second_of_look}");
        digest = first.publication().unwrap_or_default();
        first.published(digest.clone());
    }
    first.looked(Duration::from_millis(3_500), digest.clone(), look(4));
    assert_eq!(first.publication(), None, "it is decided");
    let state = |watch: &MemberWatch| states(watch).last().map(|(_, state)| *state);
    assert_eq!(state(&first), Some(MemberState::Removed));
    let mut third = MemberWatch::new(3, TIMES);
    third.looked(at(4), digest.clone(), look(4));
    assert!(third.must_leave() && !first.must_leave());
    assert_eq!(dead(&third), None);
    // It is gone.
    first.looked(at(5), digest, look(5).into_iter().take(2).collect());
    assert_eq!(removals(&first), Some(vec![]));
}

#[test]
fn links_that_break_later_count_but_make_nobody_leave() {
    let mut watch = MemberWatch::new(1, TIMES);
    let look = |second: u64| {
        let later: &[u64] = if second < 3 { &[3] } else { &[3, 4] };
        let mut all = vec![cut(1, second, []), cut(2, second, []), cut(3, second, [])];
        all.extend([cut(4, second, []), cut(5, second, []), cut(6, second, [])]);
        for (node, manifest) in &mut all {
            match node {
                2 => manifest.unreached.extend(later),
                5 if second > 2 => manifest.unreached.extend([6]),
                _ => {}
            }
        }
        all
    };
    watch_over(&mut watch, 0..=2, &none(), look);
    assert_eq!(removals(&watch), Some(vec![]));
    watch_over(&mut watch, 3..=3, &none(), look);
    // With the link to 3 alone, the younger end would leave.
    assert_eq!(removals(&watch), Some(vec![2]));
}

#[test]
fn a_node_without_an_address_is_not_asked_yet() {
    let mut watch = MemberWatch::new(1, TIMES);
    let (_, mut replays) = joining(2, []);
    replays.address = String::new();
    for second in 0..5 {
        watch.looked(at(second), none(), vec![cut(1, second, [2]), (2, replays.clone())]);
        assert_eq!(removals(&watch), Some(vec![]));
    }
    assert_eq!((watch.to_reach(), watch.unreachable_now(&[2].into())), (vec![], [].into()));
}

#[test]
fn links_of_silent_nodes_and_to_them_do_not_count() {
    let mut watch = MemberWatch::new(1, TIMES);
    for second in 0..5 {
        let found = vec![cut(1, second, [2]), cut(2, 1, [1, 3]), cut(3, second, [])];
        watch.looked(at(second), none(), found);
        assert_eq!(removals(&watch), Some(vec![]), "2 is silent");
    }
}

#[test]
fn a_removed_member_is_recovered_only_if_it_does_not_leave() {
    let digest = removing([1, 2], &[2]);
    let mut watch = MemberWatch::new(1, TIMES);
    let look = |second: u64| vec![manifest(1, second), manifest(2, second)];
    watch.looked(at(0), digest.clone(), look(0));
    watch.looked(at(2), digest.clone(), look(2));
    assert_eq!(dead(&watch), None);
    assert_eq!(watch.settlement(2, 0), None, "it has not left yet");
    let mut leaving = look(3);
    for (_, manifest) in leaving.iter_mut().skip(1) {
        manifest.phase = ManifestPhase::Leaving;
    }
    watch.looked(at(3), digest.clone(), leaving);
    assert_eq!(dead(&watch), None, "it leaves");
    watch.looked(at(4), digest.clone(), look(4));
    assert_eq!(dead(&watch), Some((2, None)));
    watch.failed(at(5));
    watch.looked(at(6), digest, look(6));
    assert_eq!(dead(&watch), None, "it may have left meanwhile");
}

#[test]
fn a_node_that_joins_reaches_members_and_older_ones_that_join() {
    let mut watch = MemberWatch::new(4, TIMES);
    let asked = |watch: &MemberWatch| -> Vec<u64> {
        watch.to_reach().iter().map(|member| member.incarnation).collect()
    };
    watch.looked(
        at(0),
        none(),
        vec![manifest(1, 1), manifest(2, 1), joining(3, [1]), joining(4, []), joining(5, [])],
    );
    assert_eq!(asked(&watch), [1, 2, 3]);
    assert_eq!(watch.unreachable_now(&[3].into()), [3].into(), "3 does not join");
    assert_eq!(watch.unreachable_now(&[2].into()), [3, 4].into());
    watch.looked(at(1), none(), vec![manifest(1, 2), joining(4, []), joining(5, [1])]);
    assert_eq!(asked(&watch), [1, 5]);
    assert_eq!(watch.unreachable_now(&[1].into()), [1].into(), "neither 4 nor 5 reaches it");
    assert_eq!(watch.unreachable_now(&[].into()), [5].into());
}

/// What node 1 publishes when node 2 is dead.
fn digest_with_a_dead_node() -> ClusterDigest {
    let mut watch = MemberWatch::new(1, TIMES);
    let found = |second| vec![manifest(1, second), manifest(2, 7), manifest(3, second)];
    watch_over(&mut watch, 0..=5, &none(), found);
    watch.publication().unwrap_or_default()
}

#[test]
fn a_node_that_does_not_watch_goes_by_the_digest() {
    let digest = digest_with_a_dead_node();
    let mut third = MemberWatch::new(3, TIMES);
    third.noted(at(0), digest.clone());
    let expected =
        [(1, MemberState::Serving), (2, MemberState::Suspected), (3, MemberState::Serving)];
    assert_eq!(states(&third), expected);
    // Nodes 1 and 3 recover it one after the other.
    third.noted(at(1), digest.clone());
    let still = DeadLog { incarnation: 2, still: Some(7), recoverer: None };
    assert_eq!(third.recoverable(0, |_| false), Some(still));
    // The digest is a hint: the manifest has changed since.
    third.looked(at(2), digest.clone(), vec![manifest(1, 9), manifest(2, 8), manifest(3, 9)]);
    assert_eq!(dead(&third), None);
    third.looked(at(3), digest, vec![manifest(1, 9), manifest(2, 7), manifest(3, 9)]);
    assert_eq!(dead(&third), Some((2, None)));
}

#[test]
fn a_node_without_a_digest_and_the_two_oldest_watch() {
    let digest = removing([1, 2, 3, 4], &[]);
    let watches = |this: u64, second: u64, digest: &ClusterDigest| {
        let mut watch = MemberWatch::new(this, TIMES);
        watch.noted(at(0), digest.clone());
        watch.has_to_watch(at(second), digest)
    };
    assert!(watches(3, 0, &none()));
    assert!(watches(5, 0, &digest), "it joins");
    assert_eq!([1, 2, 3, 4].map(|this| watches(this, 0, &digest)), [true, true, false, false]);
    assert_eq!([1, 2, 3, 4].map(|this| watches(this, 1, &digest)), [true, true, false, false]);
    assert_eq!([1, 2, 3, 4].map(|this| watches(this, 2, &digest)), [true, true, true, false]);
    assert_eq!([1, 2, 3, 4].map(|this| watches(this, 3, &digest)), [true; 4]);
}

#[test]
fn the_next_oldest_takes_over_when_no_beat_comes() {
    let digest = removing([1, 2, 3], &[]);
    let takes_over_at = |this: u64, is_first_dead: bool| {
        let mut watch = MemberWatch::new(this, TIMES);
        (0..20).find(|second| {
            let first = if is_first_dead { 1 } else { 1 + second };
            let found = vec![manifest(1, first), manifest(2, 1 + second), manifest(3, 1 + second)];
            watch.looked(at(*second), digest.clone(), found);
            watch.publication().is_some()
        })
    };
    assert_eq!([2, 3].map(|this| takes_over_at(this, true)), [Some(2), Some(3)]);
    assert_eq!([2, 3].map(|this| takes_over_at(this, false)), [Some(3), Some(4)]);
    // A node that has left does not come back.
    let mut second = MemberWatch::new(2, TIMES);
    second.looked(at(0), digest, vec![manifest(2, 1), manifest(3, 1)]);
    assert_eq!(second.publication().map(|digest| digest.members.len()), Some(2));
}

#[test]
fn a_beat_comes_every_second_and_a_change_at_once() {
    let mut watch = MemberWatch::new(1, TIMES);
    let look = |watch: &mut MemberWatch, ms: u64, nodes: u64| {
        let found = (1..=nodes).map(|node| manifest(node, ms)).collect();
        let before = watch.digest().clone();
        watch.looked(Duration::from_millis(ms), before, found);
        let next = watch.publication()?;
        watch.published(next.clone());
        Some((next.beat.number, next.beat.version))
    };
    assert_eq!(look(&mut watch, 0, 2), Some((1, 1)));
    assert_eq!(look(&mut watch, 500, 2), None);
    assert_eq!(look(&mut watch, 1_000, 2), Some((2, 1)));
    assert_eq!(look(&mut watch, 1_500, 3), Some((3, 2)));
    // Another node was first.
    let before = watch.digest().clone();
    let other = DigestBeat { number: 4, writer: 2, ..before.beat };
    let found = (1..=4).map(|node| manifest(node, 2_000)).collect();
    watch.looked(at(2), ClusterDigest { beat: other, ..before }, found);
    assert_eq!(watch.publication(), None);
}

#[test]
fn a_single_look_at_the_manifests_says_nothing_about_later() {
    let digest = removing([1, 2, 3, 4], &[]);
    let mut watch = MemberWatch::new(4, TIMES);
    watch.looked(at(1), digest.clone(), (1..=4).map(|node| manifest(node, 1)).collect());
    for second in 2..30 {
        let mut digest = digest.clone();
        digest.beat.number += second;
        watch.noted(at(second), digest);
        let states = watch.members().into_iter().map(|member| member.state);
        assert_eq!(states.collect::<Vec<_>>(), [MemberState::Serving; 4], "{second}");
    }
}
