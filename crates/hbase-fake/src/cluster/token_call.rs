//! The coprocessor that issues delegation tokens.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call_result::{CallResult, decode},
    state::ClusterState,
};

/// Issues the first token of the cluster.
pub(crate) fn handle_call(state: &ClusterState, message: Bytes) -> CallResult {
    let request: pb::CoprocessorServiceRequest = decode(message);
    let call = &request.call;
    let token = match (&call.service_name[..], &call.method_name[..], &state.tokens) {
        ("AuthenticationService", "GetAuthenticationToken", Some(tokens)) => &tokens.tokens[0],
        (service, ..) => {
            let text = format!("No registered coprocessor service found for {service}");
            return Err(("exceptions.UnknownProtocolException", text));
        }
    };
    let token = pb::Token {
        identifier: Some(token.0.clone().into()),
        password: Some(token.1.clone().into()),
        service: Some("cluster".into()),
    };
    let value = pb::GetAuthenticationTokenResponse { token: Some(token) }.encode_to_vec();
    let value = pb::NameBytesPair { name: String::new(), value: Some(value.into()) };
    let response = pb::CoprocessorServiceResponse { region: request.region, value };
    Ok((response.encode_to_vec(), Bytes::new()))
}
