//! Delegation tokens.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::Admin;
use crate::{
    client::RegionCall,
    connection::{CallClass, CallError},
    frame::FrameError,
    operation_error::OperationError,
    region::{info::RegionLocation, meta::RegionTarget, name::region_specifier},
    table_name::TableName,
    transport::token_file::DelegationToken,
};

/// Name of the coprocessor's service; unlike other services it is not below a package.
const SERVICE: &str = "AuthenticationService";

impl Admin {
    /// Gets a delegation token for the user of this client. Other processes can authenticate with it until it
    /// expires, by default after 7 days. `None` if the cluster issues none.
    ///
    /// # Errors
    ///
    /// Unless the client is authenticated by Kerberos, when the cluster has no tokens, or the procedure timeout
    /// passes.
    pub async fn authentication_token(&self) -> Result<Option<DelegationToken>, OperationError> {
        let mut attempts = self.attempts("authentication token");
        let target = RegionTarget::Holding(Bytes::new());
        loop {
            let locator = self.client.locator();
            let location = locator.locate(&TableName::meta(), &target, &mut attempts).await?;
            let deadline = attempts.call_deadline(self.client.config().admin_timeout);
            let call = RegionCall {
                method: "ExecService",
                class: CallClass::Data,
                priority: None,
                deadline,
                attempt: attempts.attempt(),
            };
            match self.request_token(&location, call).await {
                Ok(token) => return Ok(token.as_ref().map(DelegationToken::of_hbase)),
                // Tokens that nobody uses do no harm.
                Err(error) => self.client.recover(&location, error, true, &mut attempts).await?,
            }
        }
    }

    async fn request_token(
        &self,
        location: &RegionLocation,
        call: RegionCall,
    ) -> Result<Option<pb::Token>, CallError> {
        let request = pb::CoprocessorServiceRequest {
            region: region_specifier(location.region.name()),
            call: pb::CoprocessorServiceCall {
                row: Bytes::new(),
                service_name: SERVICE.to_owned(),
                method_name: "GetAuthenticationToken".to_owned(),
                request: Bytes::new(),
            },
        };
        let response = self.client.call_region(location, call, &request, Bytes::new()).await?;
        let (response, _): (pb::CoprocessorServiceResponse, _) =
            self.client.read(location, &response)?;
        let response = pb::GetAuthenticationTokenResponse::decode(response.value.value());
        let response = response.map_err(|error| {
            CallError::invalid_response(&location.server, FrameError::message(error))
        })?;
        Ok(response.token)
    }
}
