//! Options of the sockets between nodes.
//!
//! A request waits for its response as long as its caller does, so a connection to a lost host must end soon. After a
//! network outage of some minutes the operating system would retransmit only minutes later, and all requests until
//! then would fail.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Time between two probes without a response.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Sends small frames at once, and makes the connection fail if the other host acknowledges neither data nor probes
/// for `silence_timeout`.
pub(crate) fn configure(stream: &TcpStream, silence_timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(silence_timeout).with_interval(PROBE_INTERVAL);
    socket.set_tcp_keepalive(&probes)?;
    // Other systems support only the probes.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(silence_timeout))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_gives_the_other_host_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        configure(&stream, Duration::from_secs(5)).unwrap();
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(5));
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(5)));
    }
}
