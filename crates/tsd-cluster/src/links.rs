//! Broken links between nodes, and who has to go because of them.
//!
//! A link is broken if one of its ends does not reach the other. Each node publishes in its manifest which nodes it
//! does not reach. One rule decides, for a pair, for halves, for one direction, and for a node that reaches nobody:
//! remove the node with the most broken links, of equals the younger one, until no link is broken. It is a function
//! of what the manifests say, so that all nodes that read the same come to the same result.
//!
//! Members go before nodes that join: a node that joins never removes one of several members that reach each other.
//! Between members with equally many broken links, those to joining nodes decide. A single member counts like the nodes
//! that join, because it may be the one with the wrong address.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Two nodes, the older one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(u64, u64);

impl Link {
    /// The link between two nodes.
    #[must_use]
    pub fn new(one: u64, other: u64) -> Self {
        Self(one.min(other), one.max(other))
    }

    /// The node at the other end; `None` if the node is at no end.
    #[must_use]
    pub const fn other_end(self, node: u64) -> Option<u64> {
        match node {
            _ if node == self.0 => Some(self.1),
            _ if node == self.1 => Some(self.0),
            _ => None,
        }
    }
}

/// Returns the nodes to remove. `serving` are members, `joining` are nodes that want to become members.
#[must_use]
pub fn unreachable_nodes(
    serving: &BTreeSet<u64>,
    joining: &BTreeSet<u64>,
    broken: &BTreeSet<Link>,
) -> BTreeSet<u64> {
    let mut left = serving.clone();
    if serving.len() < 2 {
        left.extend(joining);
    }
    let others: BTreeSet<u64> = joining.difference(&left).copied().collect();
    let mut removed = BTreeSet::new();
    while let Some(node) = worst(&left, &others, broken) {
        left.remove(&node);
        removed.insert(node);
    }
    // In the order in which they join.
    for node in joining {
        if left.contains(node) || removed.contains(node) {
            continue;
        }
        let is_broken = |link: &Link| link.other_end(*node).is_some_and(|end| left.contains(&end));
        if broken.iter().any(is_broken) {
            removed.insert(*node);
        } else {
            left.insert(*node);
        }
    }
    removed
}

/// Returns the node with the most broken links to the nodes, of equals the one with the most broken links to `others`,
/// of equals the youngest. `None` if no link between the nodes is broken.
fn worst(nodes: &BTreeSet<u64>, others: &BTreeSet<u64>, broken: &BTreeSet<Link>) -> Option<u64> {
    let count = |node: u64, ends: &BTreeSet<u64>| {
        let is_end = |link: &&Link| link.other_end(node).is_some_and(|end| ends.contains(&end));
        broken.iter().filter(is_end).count()
    };
    let counts = nodes.iter().map(|node| (count(*node, nodes), count(*node, others), *node));
    counts.filter(|(links, ..)| *links > 0).max().map(|(.., node)| node)
}

/// Links that nodes have reported as broken from look to look. Times are relative to a fixed start.
#[derive(Clone, Debug, Default)]
pub struct BrokenLinks {
    since: BTreeMap<Link, Duration>,
}

impl BrokenLinks {
    /// Records the links that are reported as broken in a look at `now`.
    pub fn looked(&mut self, now: Duration, reported: impl IntoIterator<Item = Link>) {
        let before = std::mem::take(&mut self.since);
        let since = |link: Link| (link, before.get(&link).copied().unwrap_or(now));
        self.since = reported.into_iter().map(since).collect();
    }

    /// Records a failed look: what was seen before proves nothing about the time until now.
    pub fn failed(&mut self, now: Duration) {
        self.since.values_mut().for_each(|since| *since = now);
    }

    /// Returns the links that were reported in all looks for at least this time.
    #[must_use]
    pub fn lasting(&self, now: Duration, at_least: Duration) -> BTreeSet<Link> {
        let lasts = |(_, since): &(&Link, &Duration)| now.saturating_sub(**since) >= at_least;
        self.since.iter().filter(lasts).map(|(link, _)| *link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed<const S: usize, const J: usize>(
        serving: [u64; S],
        joining: [u64; J],
        broken: &[(u64, u64)],
    ) -> Vec<u64> {
        let broken = broken.iter().map(|(one, other)| Link::new(*one, *other)).collect();
        unreachable_nodes(&serving.into(), &joining.into(), &broken).into_iter().collect()
    }

    #[test]
    fn the_node_with_the_most_broken_links_goes() {
        assert_eq!(removed([1, 2, 3], [], &[]), []);
        assert_eq!(removed([1, 2, 3], [], &[(1, 2), (3, 1)]), [1]);
        assert_eq!(removed([1, 2, 3, 4], [], &[(2, 4), (3, 4), (1, 4), (1, 3)]), [3, 4]);
        assert_eq!(removed([1, 2, 3], [], &[(1, 9), (8, 9)]), [], "9 is no node");
    }

    #[test]
    fn of_equals_the_younger_goes() {
        assert_eq!(removed([1, 2], [], &[(1, 2)]), [2]);
        assert_eq!(removed([1, 2, 3], [], &[(3, 2)]), [3]);
        // Halves of four.
        assert_eq!(removed([1, 2, 3, 4], [], &[(1, 3), (1, 4), (2, 3), (2, 4)]), [3, 4]);
        // A node that reaches nobody, in a cluster without any other link.
        assert_eq!(removed([1, 2, 3], [], &[(1, 2), (1, 3), (2, 3)]), [2, 3]);
    }

    #[test]
    fn a_node_that_joins_removes_no_member_of_several() {
        assert_eq!(removed([1, 2], [3, 4, 5], &[(1, 3), (1, 4), (1, 5)]), [3, 4, 5]);
        assert_eq!(removed([1, 2], [3, 4], &[(3, 4)]), [4], "the older one joins");
        assert_eq!(removed([1, 2], [3, 4], &[(1, 3), (3, 4)]), [3], "3 does not join, so 4 may");
    }

    #[test]
    fn links_to_joining_nodes_decide_between_equal_members() {
        // 1 has served alone, and 3 was admitted just before 2 and 4.
        assert_eq!(removed([1, 3], [2, 4], &[(1, 3), (1, 2), (1, 4)]), [1]);
        assert_eq!(removed([1, 3], [2], &[(1, 3), (3, 2)]), [3]);
        assert_eq!(removed([1, 3, 5], [2, 4], &[(1, 2), (1, 4), (3, 5)]), [2, 4, 5]);
    }

    #[test]
    fn a_single_member_counts_like_the_nodes_that_join() {
        assert_eq!(removed([1], [2, 3], &[(1, 2), (1, 3)]), [1]);
        assert_eq!(removed([1], [2], &[(1, 2)]), [2]);
        assert_eq!(removed([], [1, 2, 3], &[(1, 2), (1, 3)]), [1]);
        assert_eq!(removed([], [1, 2, 3], &[(2, 1), (2, 3)]), [2]);
        assert_eq!(removed([], [7], &[]), []);
    }

    #[test]
    fn a_link_lasts_while_each_look_reports_it() {
        let (at, link) = (Duration::from_secs, Link::new(2, 1));
        let mut links = BrokenLinks::default();
        links.looked(at(1), [link]);
        links.looked(at(3), [link]);
        assert_eq!(links.lasting(at(3), at(2)), [link].into());
        links.failed(at(4));
        assert_eq!(links.lasting(at(4), at(2)), [].into());
        links.looked(at(6), [link]);
        assert_eq!(links.lasting(at(6), at(2)), [link].into());
        links.looked(at(7), []);
        links.looked(at(8), [link]);
        assert_eq!(links.lasting(at(8), at(2)), [].into());
    }
}
