//! A proxy that damages what a server sends.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

/// What happens to the bytes of the server.
#[derive(Clone, Copy, Debug)]
pub enum ProxyFault {
    /// The connection closes after this many bytes.
    Cut(usize),
    /// The bits of the byte at this position are inverted.
    Flip(usize),
}

/// Starts a proxy of one connection and returns its port.
pub async fn damaging_proxy(server: u16, fault: ProxyFault) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
        let (mut passed, mut buffer) = (0, vec![0; 16 << 10]);
        while let Ok(count) = from_server.read(&mut buffer).await
            && count > 0
        {
            let bytes = &mut buffer[..count];
            let end = match fault {
                ProxyFault::Cut(at) => count.min(at - passed),
                ProxyFault::Flip(at) => {
                    if let Some(byte) = at.checked_sub(passed).and_then(|at| bytes.get_mut(at)) {
                        *byte = !*byte;
                    }
                    count
                }
            };
            if to_client.write_all(&bytes[..end]).await.is_err() || end < count {
                break;
            }
            passed += count;
        }
        let _ = to_client.shutdown().await;
    });
    port
}
