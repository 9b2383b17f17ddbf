//! Checks whether a server evaluates the conditions of this client.
//!
//! Servers before 2.4 know neither the condition of a group of actions, nor filters and time ranges in
//! conditions. They skip unknown fields and would change the row unconditionally. During an upgrade of
//! the cluster the master's version is not the version of every region server. So the client asks each
//! server once, with an empty group of actions: only a server that evaluates the condition reports
//! whether it held.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use tokio::time::timeout;

use super::Table;
use crate::{
    attempts::Attempts,
    client::{Client, RegionCall},
    connection::{CallClass, CallError},
    exception::{Recovery, RemoteException},
    operation_error::{Failure, OperationError},
    region::{info::RegionLocation, name::region_specifier},
    request::condition::Condition,
    server_name::ServerName,
};

/// First version with these conditions.
const NEEDED: &str = "2.4";

/// Answer of a server.
#[derive(Debug)]
enum Support {
    Yes,
    /// Not supported; the version of the server if known.
    No(String),
}

impl Table {
    /// Checks that the server of a region evaluates conditions. Returns false if the region has to be
    /// located again.
    pub(super) async fn check_condition_support(
        &self,
        location: &RegionLocation,
        row: &Bytes,
        attempts: &mut Attempts,
    ) -> Result<bool, OperationError> {
        if self.client.condition_support().is_known(&location.server) {
            return Ok(true);
        }
        match self.ask(location, row, attempts).await {
            Ok(Support::Yes) => {
                self.client.condition_support().add(location.server.clone());
                Ok(true)
            }
            Ok(Support::No(version)) => {
                Err(attempts.fail(too_old(&location.server, version), false))
            }
            Err(error) => {
                // The question changes nothing, so it may be repeated.
                self.client.recover(location, error, true, attempts).await?;
                Ok(false)
            }
        }
    }

    async fn ask(
        &self,
        location: &RegionLocation,
        row: &Bytes,
        attempts: &Attempts,
    ) -> Result<Support, CallError> {
        let deadline = attempts.call_deadline(self.client.config().call_timeout);
        let call = RegionCall {
            method: "Multi",
            class: CallClass::Data,
            priority: None,
            deadline,
            attempt: attempts.attempt(),
        };
        let condition = Condition::absent(Bytes::from_static(b"f"), Bytes::new()).to_message(row);
        let group = pb::RegionAction {
            region: region_specifier(location.region.name()),
            atomic: Some(true),
            action: Vec::new(),
            condition: Some(condition),
        };
        let request =
            pb::MultiRequest { region_action: vec![group], ..pb::MultiRequest::default() };
        let response = self.client.call_region(location, call, &request, Bytes::new()).await;
        let answer = response.and_then(|body| self.client.read(location, &body));
        let result = match answer {
            Ok((response, _)) => {
                let response: pb::MultiResponse = response;
                response.region_action_result.into_iter().next()
            }
            // Servers before 2.0 do not expect an empty group.
            Err(CallError::Remote { exception, .. }) if is_bug(&exception) => None,
            Err(error) => return Err(error),
        };
        let Some(result) = result else { return Ok(self.client.support_by_version().await) };
        match (result.processed, &result.exception) {
            (Some(_), _) => Ok(Support::Yes),
            (None, None) => Ok(Support::No(self.client.master_version_before_needed().await)),
            (None, Some(exception)) => {
                let exception = RemoteException::from_pair(exception);
                if is_bug(&exception) || exception.recovery() == Recovery::Fail {
                    return Ok(self.client.support_by_version().await);
                }
                Err(CallError::Remote { server: location.server.clone(), exception })
            }
        }
    }
}

/// Returns the error of a condition for a server that would ignore it.
pub(super) fn too_old(server: &ServerName, version: String) -> Failure {
    Failure::ServerTooOld { server: server.clone(), version, needed: NEEDED }
}

/// True if the server did not expect the request.
fn is_bug(exception: &RemoteException) -> bool {
    exception.class_name().starts_with("java.lang.")
}

/// True if a version like `2.6.4-hadoop3` has these conditions.
fn has_conditions(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or_default());
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) >= (2, 4)
}

impl Client {
    /// Decides by the version of the master if a server's answer does not tell.
    async fn support_by_version(&self) -> Support {
        match self.master_version().await {
            Some(version) if has_conditions(&version) => Support::Yes,
            Some(version) => Support::No(version),
            None => Support::No("an unknown version".to_owned()),
        }
    }

    /// Returns the version of a server without these conditions, for its error.
    async fn master_version_before_needed(&self) -> String {
        match self.master_version().await {
            Some(version) if has_conditions(&version) => {
                format!("an older version than its master's {version}")
            }
            Some(version) => version,
            None => "an unknown version".to_owned(),
        }
    }

    async fn master_version(&self) -> Option<String> {
        let status = timeout(self.config().call_timeout, self.admin().cluster_status()).await;
        Some(status.ok()?.ok()?.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_need_version_2_4() {
        for version in ["2.4.0", "2.6.4-hadoop3", "3.0.0-beta-1", "2.10.0"] {
            assert!(has_conditions(version), "{version}");
        }
        for version in ["2.3.7", "1.7.1", "0.98.24-hadoop2", "", "noise"] {
            assert!(!has_conditions(version), "{version}");
        }
    }
}
