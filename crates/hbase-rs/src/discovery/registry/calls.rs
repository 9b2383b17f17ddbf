//! Calls of `ClientMetaService`.

use std::{slice, sync::Arc};

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::time::Instant;

use super::state::Registry;
use crate::{
    connection::{
        CallClass, CallError, CallSpec, Connection, Endpoint, SilentCloseTracker, read_response,
    },
    discovery::address::RegistryServer,
    exception::Recovery,
    handshake::Service,
    metrics::PeerMetrics,
    server_name::ServerName,
    transport::Role,
};

/// A method, whose parameter is empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegistryMethod(&'static str);

impl RegistryMethod {
    pub(super) const CLUSTER_ID: Self = Self("GetClusterId");
    pub(super) const ACTIVE_MASTER: Self = Self("GetActiveMaster");
    pub(super) const META_LOCATIONS: Self = Self("GetMetaRegionLocations");
    const BOOTSTRAP_NODES: Self = Self("GetBootstrapNodes");
    /// Older than `GetBootstrapNodes`.
    const MASTERS: Self = Self("GetMasters");
}

impl Registry {
    /// Asks a server, by a connection of its own: there are few lookups.
    pub(super) async fn ask<R: Message + Default>(
        &self,
        server: &RegistryServer,
        method: RegistryMethod,
        deadline: Instant,
    ) -> Result<R, CallError> {
        let roles = match &server.role {
            Some(role) => slice::from_ref(role),
            None => &[Role::RegionServer, Role::Master],
        };
        let mut result = Err(CallError::not_sent(&name(server), method.0));
        for role in roles {
            result = self.ask_as(server, *role, method, deadline).await;
            match &result {
                // The principal may be that of the other role.
                Err(error) if is_of_security(error) => {}
                _ => break,
            }
        }
        if let Err(error) = &result {
            tracing::debug!(%server, method = method.0, %error, "a server of the registry failed");
            if !matches!(error, CallError::Remote { .. }) {
                self.failed.notify_one();
            }
        }
        result
    }

    async fn ask_as<R: Message + Default>(
        &self,
        server: &RegistryServer,
        role: Role,
        method: RegistryMethod,
        deadline: Instant,
    ) -> Result<R, CallError> {
        let server = name(server);
        let security = self.config.transport.description();
        let endpoint = Endpoint {
            config: Arc::clone(&self.config),
            server: server.clone(),
            service: Service::ClientMeta,
            role,
            class: CallClass::Meta,
            silent_closes: Arc::new(SilentCloseTracker::new(security)),
            metrics: PeerMetrics::new(Arc::clone(&self.metrics)),
        };
        let connection = Connection::open(&endpoint, deadline).await?;
        let call = CallSpec { method: method.0, priority: None, deadline };
        let request = pb::GetClusterIdRequest::default();
        let response = connection.call(&call, &request, Bytes::new()).await?;
        Ok(read_response(&self.config, &server, &response)?.0)
    }

    /// Asks a server for further ones. Servers without `GetBootstrapNodes` tell the masters.
    pub(super) async fn ask_for_servers(
        &self,
        server: &RegistryServer,
        deadline: Instant,
    ) -> Result<Vec<RegistryServer>, CallError> {
        let nodes = self.ask(server, RegistryMethod::BOOTSTRAP_NODES, deadline).await;
        let nodes: pb::GetBootstrapNodesResponse = match nodes {
            Err(CallError::Remote { .. }) => {
                let masters = self.ask(server, RegistryMethod::MASTERS, deadline).await?;
                let masters: pb::GetMastersResponse = masters;
                let masters = masters.master_servers.iter().map(|master| &master.server_name);
                return Ok(masters.filter_map(|name| known(name, Some(Role::Master))).collect());
            }
            nodes => nodes?,
        };
        Ok(nodes.server_name.iter().filter_map(|name| known(name, None)).collect())
    }
}

fn known(name: &pb::ServerName, role: Option<Role>) -> Option<RegistryServer> {
    let name = ServerName::from_message(name)?;
    Some(RegistryServer { host: name.host().to_owned(), port: name.port(), role })
}

/// The start of the process is not known, and not needed.
fn name(server: &RegistryServer) -> ServerName {
    ServerName::new(&server.host, server.port, 0)
}

/// True if the login failed, or the server refused it.
fn is_of_security(error: &CallError) -> bool {
    matches!(error, CallError::Connect { .. } | CallError::Disconnected { .. })
        && error.recovery() == Recovery::Fail
}
