//! The servers that are known to evaluate conditions.

use parking_lot::Mutex;
use std::collections::HashSet;

use crate::server_name::ServerName;

/// Number of servers at which the set is cleared; a restarted server counts as another one.
const MAX_SERVERS: usize = 4096;

/// The servers that evaluate conditions. The client asks any other server again with every
/// condition, because it may have been restarted with another version.
#[derive(Debug, Default)]
pub(crate) struct ConditionSupport(Mutex<HashSet<ServerName>>);

impl ConditionSupport {
    /// True if this server evaluates conditions.
    pub(crate) fn is_known(&self, server: &ServerName) -> bool {
        self.0.lock().contains(server)
    }

    /// Records that this server evaluates conditions.
    pub(crate) fn add(&self, server: ServerName) {
        let mut servers = self.0.lock();
        if servers.len() >= MAX_SERVERS {
            servers.clear();
        }
        servers.insert(server);
    }
}
