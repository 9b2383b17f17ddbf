//! The servers that are known to read conditions.

use std::{collections::HashSet, sync::Mutex};

use crate::{lock::lock, server_name::ServerName};

/// Number of servers from which on they are forgotten; a restarted server is another one.
const MAX_SERVERS: usize = 4096;

/// The servers that read conditions. Others are asked again with every condition: they may have been
/// restarted with another version.
#[derive(Debug, Default)]
pub(crate) struct ConditionSupport(Mutex<HashSet<ServerName>>);

impl ConditionSupport {
    /// True if this server reads conditions.
    pub(crate) fn is_known(&self, server: &ServerName) -> bool {
        lock(&self.0).contains(server)
    }

    /// Notes that this server reads conditions.
    pub(crate) fn add(&self, server: ServerName) {
        let mut servers = lock(&self.0);
        if servers.len() >= MAX_SERVERS {
            servers.clear();
        }
        servers.insert(server);
    }
}
