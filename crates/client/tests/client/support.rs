//! Servers in the test's process.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use osb_client::{ExecdClient, LifecycleClient, protocol::lifecycle::Endpoint};
use osb_service::Supervisor;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Generous deadline, which only keeps a failure from hanging the run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Serves `router` until the test ends.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Supervisor::new().spawn_abortable("server", async move {
        axum::serve(listener, router).await.unwrap();
    });
    address
}

/// Answers one connection with these bytes, whatever the request, and closes it.
pub(crate) async fn answer_raw(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    Supervisor::new().spawn_abortable("raw server", async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
        stream.write_all(response.as_bytes()).await.unwrap();
    });
    address
}

/// Starts an execd below a path, with a token.
pub(crate) async fn execd(router: Router) -> ExecdClient {
    let address = serve(Router::new().nest("/proxy/44772", router)).await;
    execd_at(&format!("{address}/proxy/44772"))
}

pub(crate) fn execd_at(endpoint: &str) -> ExecdClient {
    let endpoint = Endpoint {
        endpoint: endpoint.to_owned(),
        headers: [("X-EXECD-ACCESS-TOKEN".to_owned(), "token".to_owned())].into(),
    };
    ExecdClient::new("http", &endpoint).unwrap()
}

pub(crate) async fn lifecycle(router: Router) -> LifecycleClient {
    let address = serve(router).await;
    LifecycleClient::new(&format!("http://{address}"), Some("key".into())).unwrap()
}
