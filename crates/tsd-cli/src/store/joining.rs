//! Admission of a daemon to a cluster: the checks with the live nodes before it serves.

use std::sync::Arc;

use hbase_rs::Client;
use tracing::debug;
use tsd_cluster_log::{ClusterLogConfig, OpenLogError, listed_nodes};
use tsd_cluster_net::{AdmissionConfig, AdmissionError, NetConfig, NodeIdentity};

use super::cluster::ClusterNodeHandle;
use crate::config::ClusterNetSettings;

/// Waits until this node may serve. It and the other nodes must reach each other, and its clock must agree with their
/// clocks.
pub(super) async fn admit(
    node: &ClusterNodeHandle,
    address: &str,
    settings: &ClusterNetSettings,
) -> anyhow::Result<()> {
    let config = AdmissionConfig {
        address: address.to_owned(),
        max_skew: settings.max_clock_skew,
        held_for: settings.held_for,
    };
    let admitted = tsd_cluster_net::admit(&node.peers, &node.links, config).await;
    admitted.map_err(|error| JoinError { text: explain(&error), is_link: is_link(&error) }.into())
}

/// Why this node does not join now, with advice for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct JoinError {
    text: String,
    /// True if a connection to another node is broken, so that waiting may help.
    pub(crate) is_link: bool,
}

const fn is_link(error: &AdmissionError) -> bool {
    matches!(error, AdmissionError::Unreachable { .. } | AdmissionError::CannotReach { .. })
}

/// Adds advice for the operator.
fn explain(error: &AdmissionError) -> String {
    match error {
        AdmissionError::Unreachable { .. } => format!(
            "{error}; set tsd.cluster.advertise to an address of this host that the other nodes can reach, and open \
            its port"
        ),
        AdmissionError::CannotReach { .. } => format!(
            "{error}; open the port of that node (tsd.cluster.bind) to this host, or set its tsd.cluster.advertise to \
             an address that this host can reach"
        ),
        AdmissionError::Tls { .. } => format!(
            "{error}; set tsd.cluster.tls.* on all nodes of a cluster or on no node, with certificates of \
             authorities \
             that all of them have in tsd.cluster.tls.ca"
        ),
        AdmissionError::Clock { ahead_ms, own_ms, nodes } => {
            let (off, direction) =
                (ahead_ms.unsigned_abs(), if *ahead_ms > 0 { "ahead of" } else { "behind" });
            let (own, theirs) = (time(*own_ms), time(own_ms - ahead_ms));
            format!(
                "the clock of this host is {off} ms {direction} the clocks of {nodes} other nodes, more than \
                 tsd.cluster.max_clock_skew: it shows {own}, theirs show {theirs}; set the clock, and let it follow \
                 a time server"
            )
        }
        error => error.to_string(),
    }
}

fn time(epoch_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(epoch_ms);
    time.map_or_else(|_| format!("{epoch_ms} ms since 1970"), |time| time.to_string())
}

/// Tells the live nodes why this node does not join.
pub(super) async fn note_refusal(
    client: &Client,
    config: &ClusterLogConfig,
    net: &NetConfig,
    error: &OpenLogError,
) {
    if !matches!(error, OpenLogError::Settings(_) | OpenLogError::NameInUse { .. }) {
        return;
    }
    let (cluster, others) = match Box::pin(listed_nodes(client, config)).await {
        Ok(Some(listed)) => listed,
        Ok(None) => return,
        Err(error) => {
            debug!(%error, "the other nodes are not known");
            return;
        }
    };
    let this = NodeIdentity { cluster, name: config.node.clone(), incarnation: 0 };
    let reason = error.to_string();
    tsd_cluster_net::note_refusal(&Arc::new(this), net, &others, &reason).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_is_named_with_both_times() {
        let error = AdmissionError::Clock { ahead_ms: -1_500, own_ms: 1_600_000_000_000, nodes: 2 };
        let text = explain(&error);
        for part in ["1500 ms behind", "2 other nodes", "2020-09-13T12:26:40Z", "12:26:41.5Z"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
