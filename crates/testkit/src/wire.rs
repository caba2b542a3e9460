//! HTTP as raw bytes, for requests that no client library would send.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::patience;

/// Connects from an address of the loopback network.
///
/// # Errors
/// When the address is not one of this machine or the server does not listen.
pub async fn connect_from(source: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(server).await
}

/// Sends these bytes and returns everything up to the close of the connection, which the request has
/// to ask for.
///
/// # Errors
/// When the connection breaks, or stays open for [`patience`].
pub async fn exchange(mut stream: TcpStream, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    timeout(patience(), stream.read_to_end(&mut answer)).await??;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
