//! Queries over TCP: a bounded number of connections, each with time limits. The sandbox opens them,
//! and must not be able to use up the file descriptors that the API needs.

use std::{io, net::SocketAddr, time::Duration};

use hickory_server::{net::xfer::Protocol, server::RequestHandler};
use osb_service::Supervisor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tracing::{debug, warn};

use super::respond::respond;
use crate::{
    limits,
    places::{ConnectionPlaces, Place},
};

/// Pause after a failed accept, so that a lack of file descriptors does not cost all of a CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers queries on connections until the supervisor stops.
pub(super) async fn serve(
    listener: TcpListener,
    proxy: impl RequestHandler + Clone,
    places: ConnectionPlaces,
    tasks: Supervisor,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopping().cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                // It may have ended already.
                let Ok(own) = stream.local_addr() else {
                    continue;
                };
                let (place, loser) = places.take(own, peer);
                if loser.is_some() {
                    debug!("too many connections with queries, the oldest one is closed");
                }
                let proxy = proxy.clone();
                tasks.spawn_abortable("queries", connection(stream, peer, place, proxy));
            }
            Err(error) => {
                warn!(%error, "accepting a connection with queries failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, place: Place, proxy: impl RequestHandler) {
    let ended = tokio::select! {
        ended = exchange(stream, peer, &proxy) => ended,
        () = place.lost() => return,
    };
    if let Err(error) = ended {
        debug!(%error, "connection with queries ended");
    }
}

/// Answers the queries of a connection one after the other, so that a client gets no more of the
/// sidecar than one query at a time.
async fn exchange(
    mut stream: TcpStream,
    peer: SocketAddr,
    proxy: &impl RequestHandler,
) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    loop {
        let query = timeout(limits::TCP_IDLE, read(&mut stream))
            .await
            .map_err(late)?;
        let Some(query) = query? else {
            return Ok(());
        };
        let Some(answer) = respond(query, peer, Protocol::Tcp, proxy).await else {
            continue;
        };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
        let written = timeout(limits::TCP_IDLE, stream.write_all(&framed)).await;
        written.map_err(late)??;
    }
}

/// The next message. `None` if the client has no more.
async fn read(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u16().await {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use hickory_server::{
        net::runtime::Time,
        proto::{
            op::{Message, Metadata, Query, ResponseCode},
            rr::{Name, RecordType},
        },
        server::{Request, ResponseHandler, ResponseInfo},
        zone_handler::MessageResponseBuilder,
    };

    use super::{super::HEADER, *};

    /// Refuses every query.
    #[derive(Clone)]
    struct Refuser;

    #[async_trait::async_trait]
    impl RequestHandler for Refuser {
        async fn handle_request<R: ResponseHandler, T: Time>(
            &self,
            request: &Request,
            mut out: R,
        ) -> ResponseInfo {
            let builder = MessageResponseBuilder::from_message_request(request);
            let metadata: &Metadata = &request.metadata;
            let refused = builder.error_msg(metadata, ResponseCode::Refused);
            out.send_response(refused).await.unwrap()
        }
    }

    /// Connections for a number of clients.
    async fn served(most: usize) -> (SocketAddr, Supervisor) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Supervisor::new();
        let places = ConnectionPlaces::new(most);
        tasks.spawn("dns", serve(listener, Refuser, places, tasks.clone()));
        (address, tasks)
    }

    fn query(id: u16) -> Vec<u8> {
        let mut message = Message::query();
        message.metadata.id = id;
        let name = Name::from_ascii("a.example.").unwrap();
        message.add_query(Query::query(name, RecordType::A));
        message.to_vec().unwrap()
    }

    async fn send(client: &mut TcpStream, message: &[u8]) {
        let length = u16::try_from(message.len()).unwrap();
        client.write_u16(length).await.unwrap();
        client.write_all(message).await.unwrap();
    }

    async fn next(client: &mut TcpStream) -> Message {
        let bytes = read(client).await.unwrap().expect("it is open");
        Message::from_vec(&bytes).unwrap()
    }

    #[tokio::test]
    async fn queries_of_a_connection_are_answered_in_order_and_what_is_none_is_not() {
        let (address, tasks) = served(1).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut an_answer = query(7);
        an_answer[2] |= 0x80;
        send(&mut client, &an_answer).await;
        send(&mut client, b"short").await;
        let mut cut = query(8);
        cut.truncate(HEADER + 3);
        send(&mut client, &cut).await;
        send(&mut client, &query(9)).await;
        let malformed = next(&mut client).await;
        let refused = next(&mut client).await;
        assert_eq!(malformed.metadata.id, 8, "the others get no answer");
        assert_eq!(malformed.metadata.response_code, ResponseCode::FormErr);
        assert_eq!(refused.metadata.id, 9);
        assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
        tasks.stop();
    }

    #[tokio::test]
    async fn a_new_connection_takes_the_place_of_the_oldest() {
        let (address, tasks) = served(2).await;
        let mut clients = Vec::new();
        for id in 0..3 {
            let mut client = TcpStream::connect(address).await.unwrap();
            send(&mut client, &query(id)).await;
            assert_eq!(next(&mut client).await.metadata.id, id);
            clients.push(client);
        }
        assert_eq!(read(&mut clients[0]).await.unwrap(), None, "it is closed");
        for (client, id) in clients[1..].iter_mut().zip(5..) {
            send(client, &query(id)).await;
            assert_eq!(next(client).await.metadata.id, id);
        }
        tasks.stop();
    }
}
