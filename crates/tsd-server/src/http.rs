//! HTTP/1.1 on one connection: hyper with OpenTSDB's routes and response formats.

mod access;
mod admission;
mod body;
mod connection_io;
mod cross_site;
mod encode_response;
mod error;
mod forwarded;
mod malformed_head;
mod own_host;
mod parsed_body;
mod raw_error;
mod request;
mod request_act;
mod request_path;
mod response;
mod routes;
mod service;

use std::{convert::Infallible, error::Error as _, io, net::SocketAddr, pin::pin, sync::Arc};

use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use self::raw_error::render_raw_error;
pub use self::routes::{
    quarantine::quarantine_json, query_list::running_queries, snapshot::snapshot_json,
    verify::verification_json,
};
use self::{connection_io::ConnectionIo, malformed_head::answer_malformed_head};
use crate::{
    connection_epoch::ConnectionEpoch, open_connections::OpenConnection, server_state::ServerState,
    timeout_io::TimeoutIo,
};

/// Maximum read buffer of a connection. Bodies are read in chunks of up to this size, and a head must fit.
const READ_BUFFER: usize = 32 << 10;

/// Maximum headers of a request. hyper fills an array of this length for each request: with the 1 638 headers that fit into 8 KiB,
/// that took 5 % of the CPU time of puts of 50 points.
const MAX_HEADERS: usize = 256;

/// Serves HTTP until the connection closes.
pub(crate) async fn serve<S>(
    state: Arc<ServerState>,
    io: TimeoutIo<S>,
    (connection, epoch): (Arc<OpenConnection>, Option<Arc<ConnectionEpoch>>),
    peer: SocketAddr,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let identity = access::ConnectionIdentity::new(Arc::clone(&connection));
    let peer = access::ConnectionPeer { address: peer, identity, epoch };
    let open = Arc::clone(&connection);
    let tracker = &open.tracker;
    let mut io = ConnectionIo::new(io, Arc::clone(&state.connections), Arc::clone(&connection));
    let service = service_fn(|request: hyper::Request<Incoming>| {
        // Must happen before the first await: from now on the end of input is withheld.
        let active_request = tracker.request_received();
        let (state, peer) = (Arc::clone(&state), &peer);
        async move {
            Ok::<_, Infallible>(
                service::handle_request(&state, request, peer, active_request).await,
            )
        }
    });
    // `pipeline_flush` stays off: with it hyper delays responses while part of a later request is
    // buffered, so a client that sends one and a half requests waits forever, and one that never
    // pauses makes responses pile up in memory.
    let result = {
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .auto_date_header(false)
                .title_case_headers(true)
                .max_buf_size(READ_BUFFER)
                .max_headers(MAX_HEADERS)
                .serve_connection(TokioIo::new(&mut io), service)
        );
        tokio::select! {
            result = connection.as_mut() => result,
            () = open.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    result = connection => result,
                    // The client does not read the rest of its response.
                    () = open.overdue() => Ok(()),
                }
            }
        }
    };
    if let Err(error) = &result {
        answer_malformed_head(&state, &mut io, error).await?;
    }
    result.map_err(io_error)
}

/// Maps the error that ended a connection to an `io::Error`.
fn io_error(error: hyper::Error) -> io::Error {
    let kind =
        error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let kind = kind.unwrap_or_else(|| {
        if error.is_timeout() {
            io::ErrorKind::TimedOut
        } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            io::ErrorKind::UnexpectedEof
        } else {
            io::ErrorKind::InvalidData
        }
    });
    io::Error::new(kind, error)
}
